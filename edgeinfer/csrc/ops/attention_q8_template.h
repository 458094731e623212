/* edgeinfer/csrc/ops/attention_q8_template.h: keys and values of 8 bits with a scale for every 32 dims of a position.
 *
 * Included by attention_template.h. Of a head whose size is no multiple of 32 the last block is shorter.
 *
 * The law. Stored: d = f16(max|x| / 127), code = x * (1/d) to nearest even, cut to -127 .. 127; all codes are 0 where
 * d is 0 or not finite, and then d is NaN. A query, after the attention scale: d = max|q| / 127 in f32 and
 * code = q * (127 / max|q|) to nearest even, all 0 below 2^-112 or not finite.
 *   score: for each block of dims in order: isum = exact sum of code * code; s = fma(isum, dq * dk, s), from 0
 *   o: for each block of dims: dmax = the largest d of the positions the row sees in the chunk;
 *      f = rint(d * (32767 / dmax)); p = rint(w * 32767); weight = (p * f + 2^14) >> 15, an integer;
 *      isum = exact sum of weight * code; o = isum * (dmax * 32768/32767^2)
 * All weights are 0 if dmax is 0 or not finite, and where l is NaN. dmax is the row's own: were it that of all
 * positions written so far, later tokens would change the results of earlier ones.
 */

enum { Q8_BLOCK = EI_BLOCK, Q8_MOST = 127, WEIGHT_MOST = 32767 };

_Static_assert((int64_t)EI_CHUNK_LEN * WEIGHT_MOST * Q8_MOST < INT32_MAX, "a chunk's sum of weight * code");

EI_INLINE size_t q8_blocks(int32_t dim) { return ei_padded(dim, Q8_BLOCK) / Q8_BLOCK; }

/* n values (at most a block) as two vectors, 0 beyond them, and the bits of the largest |x|: NaN above infinity. */
EI_INLINE int32_t load_block(const float *x, int32_t n, vf *low, vf *high) {
    *low = vf_load_n(x, min_i32(n, 16));
    *high = vf_load_n(x + min_i32(n, 16), max_i32(n - 16, 0));
    return vi_max_all(vi_max(vf_bits(vf_abs(*low)), vf_bits(vf_abs(*high))));
}

EI_INLINE vi codes_of(vf x, float by) {
    vf most = vf_set(Q8_MOST), least = vf_set(-Q8_MOST);
    return vi_round(vf_min(vf_max(vf_mul(x, vf_set(by)), least), most));
}

/* -- store ---------------------------------------------------------------------------------- */

/* The codes of a block of n values; returns its scale as f16. */
static uint16_t quantize_kv(const float *x, int32_t n, int8_t *codes) {
    vf low, high;
    float amax = f32_from_bits((uint32_t)load_block(x, n, &low, &high));
    uint16_t half = f32_to_f16(amax / Q8_MOST);
    float by = 0;
    if ((half & 0x7c00) == 0x7c00)
        half = 0x7e00, low = high = vf_zero();
    else if (half)
        by = 1.0f / f16_to_f32(half);
    vi_to_s8(codes, codes_of(low, by));
    vi_to_s8(codes + 16, codes_of(high, by));
    return half;
}

/* One position of one head. What is not finite, or has no scale in f16, makes every row that sees it NaN. */
static void store_q8(const ei_kv *kv, uint8_t *keys, uint8_t *values, int32_t lane, const float *k, const float *v) {
    int8_t codes[Q8_BLOCK];
    uint16_t *scales = (uint16_t *)(void *)keys + lane;
    int8_t *to = (int8_t *)keys + ei_q8_scale_bytes(kv->key_dim) + 4 * lane;
    for (int32_t d = 0; d < kv->key_dim; d += Q8_BLOCK, scales += 16) {
        int32_t n = min_i32(Q8_BLOCK, kv->key_dim - d);
        *scales = quantize_kv(k + d, n, codes);
        for (int32_t i = 0; i < n; i += 4, to += 64) memcpy(to, codes + i, 4);
    }
    scales = (uint16_t *)(void *)values + lane;
    to = (int8_t *)values + ei_q8_scale_bytes(kv->value_dim) + (size_t)(lane / 2) * 2 * ei_padded(kv->value_dim, 16);
    for (int32_t d = 0; d < kv->value_dim; d += Q8_BLOCK, scales += 16) {
        int32_t n = min_i32(Q8_BLOCK, kv->value_dim - d);
        *scales = quantize_kv(v + d, n, codes);
        for (int32_t i = 0; i < n; i++) to[2 * (d + i) + lane % 2] = codes[i];
    }
}

/* -- query ---------------------------------------------------------------------------------- */

/* A query in words of 4 bytes: codes [dim/4] of four, scales f32 [dim/32], sums of the codes s32 [dim/32]. */
typedef struct {
    int8_t *codes;
    float *d;
    int32_t *sums;
} q8_query;

EI_INLINE q8_query query_at(const float *q, int32_t key_dim) {
    float *d = (float *)(uintptr_t)q + ei_padded(key_dim, 4) / 4;
    return (q8_query){(int8_t *)(uintptr_t)q, d, (int32_t *)(void *)(d + q8_blocks(key_dim))};
}

static void prepare_q8(int32_t key_dim, const float *q, float scale, float *out) {
    q8_query to = query_at(out, key_dim);
    vf by = vf_set(scale);
    for (int32_t d = 0; d < key_dim; d += Q8_BLOCK, to.codes += Q8_BLOCK) {
        int8_t codes[Q8_BLOCK];
        int32_t n = min_i32(Q8_BLOCK, key_dim - d), sum = 0;
        float scaled[Q8_BLOCK];
        vf_store(scaled, vf_mul(vf_load_n(q + d, min_i32(n, 16)), by));
        vf_store(scaled + 16, vf_mul(vf_load_n(q + d + min_i32(n, 16), max_i32(n - 16, 0)), by));
        vf low, high;
        int32_t bits = load_block(scaled, Q8_BLOCK, &low, &high);
        float amax = f32_from_bits((uint32_t)bits);
        bool usable = amax >= 0x1p-112f && bits < 0x7f800000;
        vi_to_s8(codes, codes_of(low, usable ? Q8_MOST / amax : 0.0f));
        vi_to_s8(codes + 16, codes_of(high, usable ? Q8_MOST / amax : 0.0f));
        if (!usable) memset(codes, 0, sizeof codes);
        for (int32_t i = 0; i < n; i++) sum += codes[i];
        memcpy(to.codes, codes, ei_padded(n, 4));
        *to.d++ = amax / Q8_MOST;
        *to.sums++ = sum;
    }
}

/* -- score ---------------------------------------------------------------------------------- */

/* Scores of n_rows queries against n blocks of positions from block b on. */
EI_INLINE void score_blocks_q8(int n_rows, int n, const attention_tile *t, int32_t b, const float *q, float *scores) {
    size_t stride = t->query_words, n_groups = ei_padded(t->key_dim, 4) / 4,
           scale_bytes = ei_q8_scale_bytes(t->key_dim);
    q8_query query = query_at(q, t->key_dim);
    for (size_t block = 0, g = 0; g < n_groups; block++) {
        size_t end = g + Q8_BLOCK / 4 < n_groups ? g + Q8_BLOCK / 4 : n_groups;
        vi acc[EI_KEY_VECTORS];
        EI_UNROLL for (int r = 0; r < n_rows; r++) {
            vi start = vi_set(-EI_KEY_BIAS * query.sums[(size_t)r * stride + block]);
            EI_UNROLL for (int j = 0; j < n; j++) acc[r * n + j] = start;
        }
        EI_UNROLL for (int j = 0; j < n; j++) EI_FETCH(n_rows, t->after_keys[b + j] + block * 32);
        for (; g < end; g++) {
            vk k[4];
            EI_UNROLL for (int j = 0; j < n; j++) {
                EI_FETCH(n_rows, t->after_keys[b + j] + scale_bytes + g * 64);
                k[j] = vk_load((const int8_t *)t->keys[b + j] + scale_bytes + g * 64);
            }
            EI_UNROLL for (int r = 0; r < n_rows; r++) {
                EI_UNROLL for (int j = 0; j < n; j++) acc[r * n + j] =
                    vk_dot(acc[r * n + j], k[j], query.codes + (size_t)r * stride * 4 + g * 4);
            }
        }
        EI_UNROLL for (int j = 0; j < n; j++) {
            vf dk = vf_from_f16((const uint16_t *)(const void *)t->keys[b + j] + block * 16);
            EI_UNROLL for (int r = 0; r < n_rows; r++) {
                float *at = scores + r * EI_SCORE_STRIDE + t->start[b + j];
                vf scale = vf_mul(vf_set(query.d[(size_t)r * stride + block]), dk);
                vf_store(at, vf_fma(vf_from_vi(acc[r * n + j]), scale, block ? vf_load(at) : vf_zero()));
            }
        }
    }
}

EI_INLINE void score_rows_q8(int n_rows, const attention_tile *t, const float *q, float *scores) {
    const int n = EI_KEY_VECTORS / n_rows >= 4 ? 4 : EI_KEY_VECTORS / n_rows >= 2 ? 2 : 1;
    int32_t b = 0;
    for (; b + n <= t->n_blocks; b += n) score_blocks_q8(n_rows, n, t, b, q, scores);
    for (; n > 1 && b < t->n_blocks; b++) score_blocks_q8(n_rows, 1, t, b, q, scores);
}

/* A tile of more rows than there are accumulators is scored half by half. */
EI_INLINE void score_q8(int n_rows, const attention_tile *t, const float *q, float *scores) {
    if (n_rows <= EI_KEY_VECTORS) {
        score_rows_q8(n_rows, t, q, scores);
        return;
    }
    const int half = n_rows / 2, rest = n_rows - half;
    score_rows_q8(half, t, q, scores);
    score_rows_q8(rest, t, q + half * t->query_words, scores + half * EI_SCORE_STRIDE);
}

/* -- weigh ---------------------------------------------------------------------------------- */

/* A row's line of scores becomes p, 16 bits for each position of the chunk, and behind it the integer weights. */
EI_INLINE int16_t *p_of(float *scores, int32_t r) { return (int16_t *)(void *)(scores + r * EI_SCORE_STRIDE); }
EI_INLINE int16_t *weights_of(float *scores, int32_t r) { return p_of(scores, r) + EI_CHUNK_LEN; }

/* In place: the words of 16 positions end where their floats begin, or before. */
static void round_weights(const attention_tile *t, int32_t n_rows, const float *l, float *scores) {
    vf most = vf_set(WEIGHT_MOST);
    for (int32_t r = 0; r < n_rows; r++) {
        int16_t *p = p_of(scores, r);
        bool none = t->low[r] >= t->high[r] || l[r] != l[r];
        for (int32_t b = 0; b < t->n_blocks; b++) {
            int32_t at = t->start[b];
            bool seen = !none && at + 16 > t->low[r] && at < t->high[r];
            vf w = vf_load(scores + r * EI_SCORE_STRIDE + at);
            vi_to_s16(p + at, seen ? vi_round(vf_mul(w, most)) : vi_zero());
        }
    }
}

/* The scales of block b of positions that row r sees, 0 in the other lanes. */
EI_INLINE vf seen_scales(const attention_tile *t, int32_t r, int32_t b, size_t block) {
    const uint16_t *at = (const uint16_t *)(const void *)t->values[b] + block * 16;
    int32_t from = t->low[r] - t->start[b], to = t->high[r] - t->start[b];
    if (from <= 0 && to >= 16) return vf_from_f16(at);
    uint16_t seen[16] = {0};
    for (int32_t i = max_i32(from, 0); i < min_i32(to, 16); i++) seen[i] = at[i];
    return vf_from_f16(seen);
}

/* f of every position that row r sees; returns dmax. */
static float scale_factors(const attention_tile *t, int32_t r, size_t block, int16_t *factors) {
    vi most = vi_zero();
    for (int32_t b = 0; b < t->n_blocks; b++) most = vi_max(most, vf_bits(seen_scales(t, r, b, block)));
    int32_t bits = vi_max_all(most);
    float dmax = f32_from_bits((uint32_t)bits), by = WEIGHT_MOST / dmax;
    bool usable = bits > 0 && bits < 0x7f800000;
    for (int32_t b = 0; b < t->n_blocks; b++)
        vi_to_s16(factors + t->start[b],
                  usable ? vi_round(vf_mul(seen_scales(t, r, b, block), vf_set(by))) : vi_zero());
    return dmax;
}

/* The integer weights of every row for one block of dims, and what the sums are to be multiplied by. */
static void weigh_block(const attention_tile *t, int32_t n_rows, size_t block, float *scores, float *by) {
    int16_t factors[EI_CHUNK_LEN];
    for (int32_t r = 0; r < n_rows; r++) {
        if (!r || t->low[r] != t->low[r - 1] || t->high[r] != t->high[r - 1])
            by[r] = scale_factors(t, r, block, factors) * (float)(32768.0 / (32767.0 * 32767.0));
        else
            by[r] = by[r - 1];
        for (int32_t b = 0; b < t->n_blocks; b++) {
            int32_t at = t->start[b];
            words_scaled(weights_of(scores, r) + at, p_of(scores, r) + at, factors + at);
        }
    }
}

/* n vectors of the output from dim d on, of which only the last may be short. */
EI_INLINE void weigh_dims_q8(int n_rows, int n, const attention_tile *t, float *scores, const float *by, size_t d,
                             float *o) {
    vi acc[EI_ATTENTION_VECTORS];
    size_t dims = (size_t)t->value_dim, pair = 2 * ei_padded(t->value_dim, 16),
           scale_bytes = ei_q8_scale_bytes(t->value_dim);
    const int16_t *weights = weights_of(scores, 0);
    EI_UNROLL for (int i = 0; i < n_rows * n; i++) acc[i] = vi_zero();
    for (int32_t b = 0; b < t->n_blocks; b++) {
        const int8_t *v = (const int8_t *)t->values[b] + scale_bytes + 2 * d;
        const uint8_t *after = t->after_values[b] + scale_bytes + 2 * d;
        for (int32_t i = 0; i < 16; i += 2, v += pair, after += pair) {
            vp values[4];
            EI_UNROLL for (int j = 0; j < n; j++) values[j] = vp_load(v + 32 * j);
            EI_UNROLL for (int j = 0; j < n; j += 2) EI_FETCH(n_rows, after + 32 * j);
            EI_UNROLL for (int r = 0; r < n_rows; r++) {
                EI_UNROLL for (int j = 0; j < n; j++) acc[r * n + j] =
                    vp_dot(acc[r * n + j], values[j], weights + r * 2 * EI_SCORE_STRIDE + t->start[b] + i);
            }
        }
    }
    EI_UNROLL for (int r = 0; r < n_rows; r++) {
        EI_UNROLL for (int j = 0; j < n; j++) {
            size_t at = d + 16 * (size_t)j;
            store_dims(o + (size_t)r * dims + at, vf_mul(vf_from_vi(acc[r * n + j]), vf_set(by[r])),
                       (int32_t)(dims - at));
        }
    }
}

EI_INLINE void weigh_q8(int n_rows, const attention_tile *t, const float *l, float *scores, float *o) {
    float by[EI_ATTENTION_ROWS];
    size_t dims = ei_padded(t->value_dim, 16);
    round_weights(t, n_rows, l, scores);
    for (size_t block = 0, d = 0; d < dims; block++) {
        weigh_block(t, n_rows, block, scores, by);
        if (EI_VECTORS_OF(n_rows) >= 2 && d + Q8_BLOCK <= dims) {
            weigh_dims_q8(n_rows, EI_VECTORS_OF(n_rows) >= 2 ? 2 : 1, t, scores, by, d, o);
            d += Q8_BLOCK;
        } else {
            for (size_t end = d + Q8_BLOCK < dims ? d + Q8_BLOCK : dims; d < end; d += 16)
                weigh_dims_q8(n_rows, 1, t, scores, by, d, o);
        }
    }
}
