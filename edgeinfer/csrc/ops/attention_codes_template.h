/* edgeinfer/csrc/ops/attention_codes_template.h: keys and values of 8 or 4 bits with a scale for every 32 dims of a
 * position.
 *
 * Included by attention_template.h; the functions take the type as a constant. Of a head whose size is no multiple of
 * 32 the last block is shorter.
 *
 * The law. Stored: codes = x * (1/d) to nearest even; all are 0 where d is 0 or not finite, and then d is NaN.
 *   q8_0  d = f16(max|x| / 127), codes cut to -127 .. 127
 *   q4_0  d = f16(m / -8) for that x = m whose |x| is the largest, of two the positive; codes cut to -8 .. 7
 * A whole block of a q4_0 key is turned before it is stored (turn_block), so that a channel that outweighs the others
 * does not cost them their bits; that of a query is too, after the attention scale, and then multiplied by 1/32, so
 * that their product stays what it was.
 * A query, after the attention scale: d = max|q| / 127 in f32 and code = q * (127 / max|q|) to nearest even, all 0
 * where max|q| is below 2^-112 or not finite.
 *   score: for each block of dims in order: isum = exact sum of code * code; s = fma(isum, dq * dk, s), from 0
 *   o: for each block of dims: dmax = the largest |d| of the positions the row sees in the chunk;
 *      f = rint(d * (32767 / dmax)); p = rint(w * 32767); weight = (p * f + 2^14) >> 15, an integer;
 *      isum = exact sum of weight * code; o = isum * (dmax * 32768/32767^2)
 * All weights are 0 if dmax is 0 or not finite, and where l is NaN. dmax is the row's own: were it that of all
 * positions written so far, later tokens would change the results of earlier ones.
 */

enum { CODE_MOST = 127, NARROW_MOST = 8, WEIGHT_MOST = 32767 };

_Static_assert((int64_t)EI_CHUNK_LEN * WEIGHT_MOST * CODE_MOST < INT32_MAX, "a chunk's sum of weight * code");

EI_INLINE size_t n_blocks_of(int32_t dim) { return ei_padded(dim, EI_BLOCK) / EI_BLOCK; }

/* n values (at most a block) as two vectors, 0 beyond them, and the bits of the largest |x|: NaN above infinity. */
EI_INLINE int32_t load_block(const float *x, int32_t n, vf *low, vf *high) {
    *low = vf_load_n(x, min_i32(n, 16));
    *high = vf_load_n(x + min_i32(n, 16), max_i32(n - 16, 0));
    return vi_max_all(vi_max(vf_bits(vf_abs(*low)), vf_bits(vf_abs(*high))));
}

EI_INLINE vi codes_of(vf x, float by, float least, float most) {
    return vi_round(vf_min(vf_max(vf_mul(x, vf_set(by)), vf_set(least)), vf_set(most)));
}

/* Times the Hadamard matrix of 32: sums and differences of pairs 1 apart, then 2, 4, 8 and 16. */
static void turn_block(float *x) {
    for (int h = 1; h < EI_BLOCK; h *= 2)
        for (int i = 0; i < EI_BLOCK; i += 2 * h)
            for (int j = i; j < i + h; j++) {
                float a = x[j], b = x[j + h];
                x[j] = a + b, x[j + h] = a - b;
            }
}
EI_INLINE bool is_turned(int type, int32_t n) { return type == EI_KV_Q4_0 && n == EI_BLOCK; }

/* -- store ---------------------------------------------------------------------------------- */

/* The codes of a block of n values, returning its scale as f16. Those of 4 bits are as stored: 8 more, or all 0. */
EI_INLINE uint16_t quantize_kv(int type, const float *x, int32_t n, int8_t *codes) {
    vf low, high;
    float amax = f32_from_bits((uint32_t)load_block(x, n, &low, &high)), by = 0, d = amax / CODE_MOST;
    float least = -CODE_MOST, most = CODE_MOST;
    if (type == EI_KV_Q4_0) {
        d = amax / (largest_lane(vf_max(low, high)) == amax ? -NARROW_MOST : NARROW_MOST);
        least = -NARROW_MOST, most = NARROW_MOST - 1;
    }
    uint16_t half = f32_to_f16(d);
    if ((half & 0x7c00) == 0x7c00)
        half = 0x7e00, low = high = vf_zero();
    else if (half & 0x7fff)
        by = 1.0f / f16_to_f32(half);
    else
        half = 0;
    vi up = vi_set(type == EI_KV_Q4_0 && by != 0 ? NARROW_MOST : 0);
    vi_to_s8(codes, vi_add(codes_of(low, by, least, most), up));
    vi_to_s8(codes + 16, vi_add(codes_of(high, by, least, most), up));
    return half;
}

EI_INLINE int8_t two_codes(int8_t low, int8_t high) { return (int8_t)(low | high << 4); }

/* One position of one head. What is not finite, or has no scale in f16, makes every row that sees it NaN. No byte holds
 * codes of two positions: they may be stored by two threads. */
EI_INLINE void store_codes(int type, const ei_kv *kv, uint8_t *keys, uint8_t *values, int32_t lane, const float *k,
                           const float *v) {
    const bool narrow = type == EI_KV_Q4_0;
    int8_t codes[EI_BLOCK];
    uint16_t *scales = (uint16_t *)(void *)keys + lane;
    int8_t *to = (int8_t *)keys + ei_scale_bytes(kv->key_dim) + 4 * lane;
    for (int32_t d = 0; d < kv->key_dim; d += EI_BLOCK, scales += 16) {
        int32_t n = min_i32(EI_BLOCK, kv->key_dim - d);
        float key[EI_BLOCK];
        memcpy(key, k + d, (size_t)n * sizeof *key);
        if (is_turned(type, n)) turn_block(key);
        *scales = quantize_kv(type, key, n, codes);
        for (int32_t i = 0; i < n; i += narrow ? 8 : 4, to += 64)
            for (int32_t j = 0; j < 4; j++) to[j] = narrow ? two_codes(codes[i + j], codes[i + j + 4]) : codes[i + j];
    }
    scales = (uint16_t *)(void *)values + lane;
    to = (int8_t *)values + ei_scale_bytes(kv->value_dim) + (size_t)(lane / 2) * ei_value_pair(kv) + lane % 2;
    for (int32_t d = 0; d < kv->value_dim; d += EI_BLOCK, scales += 16) {
        int32_t n = min_i32(EI_BLOCK, kv->value_dim - d);
        *scales = quantize_kv(type, v + d, n, codes);
        for (int32_t i = 0; i < (narrow ? 16 : n); i++, to += 2)
            *to = narrow ? two_codes(codes[i], codes[i + 16]) : codes[i];
    }
}
static void store_q8(const ei_kv *kv, uint8_t *keys, uint8_t *values, int32_t lane, const float *k, const float *v) {
    store_codes(EI_KV_Q8_0, kv, keys, values, lane, k, v);
}
static void store_q4(const ei_kv *kv, uint8_t *keys, uint8_t *values, int32_t lane, const float *k, const float *v) {
    store_codes(EI_KV_Q4_0, kv, keys, values, lane, k, v);
}

/* -- query ---------------------------------------------------------------------------------- */

/* A query in words of 4 bytes: codes [dim/4] of four, scales f32 [dim/32], sums of the codes s32 [dim/32]. */
typedef struct {
    int8_t *codes;
    float *d;
    int32_t *sums;
} codes_query;

EI_INLINE codes_query query_at(const float *q, int32_t key_dim) {
    float *d = (float *)(uintptr_t)q + ei_padded(key_dim, 4) / 4;
    return (codes_query){(int8_t *)(uintptr_t)q, d, (int32_t *)(void *)(d + n_blocks_of(key_dim))};
}

static void prepare_codes(int32_t type, int32_t key_dim, const float *q, float scale, float *out) {
    codes_query to = query_at(out, key_dim);
    vf by = vf_set(scale);
    for (int32_t d = 0; d < key_dim; d += EI_BLOCK, to.codes += EI_BLOCK) {
        int8_t codes[EI_BLOCK];
        int32_t n = min_i32(EI_BLOCK, key_dim - d), sum = 0;
        float scaled[EI_BLOCK];
        vf_store(scaled, vf_mul(vf_load_n(q + d, min_i32(n, 16)), by));
        vf_store(scaled + 16, vf_mul(vf_load_n(q + d + min_i32(n, 16), max_i32(n - 16, 0)), by));
        if (is_turned(type, n)) {
            turn_block(scaled);
            for (int i = 0; i < EI_BLOCK; i++) scaled[i] *= 1.0f / EI_BLOCK;
        }
        vf low, high;
        int32_t bits = load_block(scaled, EI_BLOCK, &low, &high);
        float amax = f32_from_bits((uint32_t)bits);
        bool usable = amax >= 0x1p-112f && bits < 0x7f800000;
        vi_to_s8(codes, codes_of(low, usable ? CODE_MOST / amax : 0.0f, -CODE_MOST, CODE_MOST));
        vi_to_s8(codes + 16, codes_of(high, usable ? CODE_MOST / amax : 0.0f, -CODE_MOST, CODE_MOST));
        if (!usable) memset(codes, 0, sizeof codes);
        for (int32_t i = 0; i < n; i++) sum += codes[i];
        memcpy(to.codes, codes, ei_padded(n, 4));
        *to.d++ = amax / CODE_MOST;
        *to.sums++ = sum;
    }
}

/* -- score ---------------------------------------------------------------------------------- */

/* A block's sum from its start over products with the groups of 4 dims. Codes of 4 bits are unsigned here, so that the
 * verbs of matmuls take them; what they are too large by comes back through the sums of the query. */
EI_INLINE va start_score(int type, int32_t query_sum) {
    return type == EI_KV_Q4_0 ? va_zero() : vi_set(-EI_KEY_BIAS * query_sum);
}
EI_INLINE vk load_keys(int type, const uint8_t *p, int group) {
    if (type == EI_KV_Q8_0) return vk_load((const int8_t *)p);
    return group ? vb_shr_and(vb_load(p), 4, 0x0f) : vb_and(vb_load(p), 0x0f);
}
EI_INLINE va dot_keys(int type, va sum, vk k, const int8_t *q) {
    return type == EI_KV_Q4_0 ? va_dot_u8(sum, k, q) : vk_dot(sum, k, q);
}
EI_INLINE vi end_score(int type, va sum, int32_t query_sum) {
    return type == EI_KV_Q4_0 ? va_flush(vi_set(-NARROW_MOST * query_sum), sum) : sum;
}

/* Scores of n_rows queries against n blocks of positions from block b on. */
EI_INLINE void score_code_blocks(int n_rows, int n, int type, const attention_tile *t, int32_t b, const float *q,
                                 float *scores) {
    const int groups = type == EI_KV_Q4_0 ? 2 : 1; /* of 4 dims, in one load */
    size_t stride = t->query_words, n_groups = ei_padded(t->key_dim, 4) / 4, scale_bytes = ei_scale_bytes(t->key_dim);
    codes_query query = query_at(q, t->key_dim);
    for (size_t block = 0, g = 0; g < n_groups; block++) {
        size_t end = g + EI_BLOCK / 4 < n_groups ? g + EI_BLOCK / 4 : n_groups;
        va acc[EI_KEY_VECTORS];
        EI_UNROLL for (int r = 0; r < n_rows; r++) {
            va start = start_score(type, query.sums[(size_t)r * stride + block]);
            EI_UNROLL for (int j = 0; j < n; j++) acc[r * n + j] = start;
        }
        EI_UNROLL for (int j = 0; j < n; j++) EI_FETCH(n_rows, t->after_keys[b + j] + block * 32);
        for (; g < end; g += (size_t)groups) {
            size_t at = scale_bytes + g / (size_t)groups * 64;
            EI_UNROLL for (int j = 0; j < n; j++) EI_FETCH(n_rows, t->after_keys[b + j] + at);
            EI_UNROLL for (int i = 0; i < groups; i++) {
                if (i && g + 1 == end) break;
                vk k[4];
                EI_UNROLL for (int j = 0; j < n; j++) k[j] = load_keys(type, t->keys[b + j] + at, i);
                EI_UNROLL for (int r = 0; r < n_rows; r++) {
                    const int8_t *x = query.codes + (size_t)r * stride * 4 + (g + (size_t)i) * 4;
                    EI_UNROLL for (int j = 0; j < n; j++) acc[r * n + j] = dot_keys(type, acc[r * n + j], k[j], x);
                }
            }
        }
        EI_UNROLL for (int j = 0; j < n; j++) {
            vf dk = vf_from_f16((const uint16_t *)(const void *)t->keys[b + j] + block * 16);
            EI_UNROLL for (int r = 0; r < n_rows; r++) {
                float *at = scores + r * EI_SCORE_STRIDE + t->start[b + j];
                vf scale = vf_mul(vf_set(query.d[(size_t)r * stride + block]), dk);
                vi isum = end_score(type, acc[r * n + j], query.sums[(size_t)r * stride + block]);
                vf_store(at, vf_fma(vf_from_vi(isum), scale, block ? vf_load(at) : vf_zero()));
            }
        }
    }
}

EI_INLINE void score_code_rows(int n_rows, int type, const attention_tile *t, const float *q, float *scores) {
    const int n = EI_KEY_VECTORS / n_rows >= 4 ? 4 : EI_KEY_VECTORS / n_rows >= 2 ? 2 : 1;
    int32_t b = 0;
    for (; b + n <= t->n_blocks; b += n) score_code_blocks(n_rows, n, type, t, b, q, scores);
    for (; n > 1 && b < t->n_blocks; b++) score_code_blocks(n_rows, 1, type, t, b, q, scores);
}

/* A tile of more rows than there are accumulators is scored half by half. */
EI_INLINE void score_codes(int n_rows, int type, const attention_tile *t, const float *q, float *scores) {
    if (n_rows <= EI_KEY_VECTORS) {
        score_code_rows(n_rows, type, t, q, scores);
        return;
    }
    const int half = n_rows / 2, rest = n_rows - half;
    score_code_rows(half, type, t, q, scores);
    score_code_rows(rest, type, t, q + half * t->query_words, scores + half * EI_SCORE_STRIDE);
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
    for (int32_t b = 0; b < t->n_blocks; b++) most = vi_max(most, vf_bits(vf_abs(seen_scales(t, r, b, block))));
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

/* Of a pair of positions 16 dims: of codes of 4 bits one half of a block's, of 8 bits vector j. */
EI_INLINE vp load_values(int type, const uint8_t *v, int half, int j) {
    return type == EI_KV_Q4_0 ? vp_nibbles(v, 4 * half) : vp_load((const int8_t *)v + 32 * j);
}

/* n vectors of the output from dim d on, of which only the last may be short: one, or both of a block. */
EI_INLINE void weigh_code_dims(int n_rows, int n, int type, const attention_tile *t, float *scores, const float *by,
                               size_t d, float *o) {
    vi acc[EI_ATTENTION_VECTORS];
    size_t dims = (size_t)t->value_dim, pair = t->value_pair,
           at = ei_scale_bytes(t->value_dim) + (type == EI_KV_Q4_0 ? d / EI_BLOCK * EI_BLOCK : 2 * d);
    const int half = d % EI_BLOCK ? 1 : 0;
    const int16_t *weights = weights_of(scores, 0);
    EI_UNROLL for (int i = 0; i < n_rows * n; i++) acc[i] = vi_zero();
    for (int32_t b = 0; b < t->n_blocks; b++) {
        const uint8_t *v = t->values[b] + at, *after = t->after_values[b] + at;
        for (int32_t i = 0; i < 16; i += 2, v += pair, after += pair) {
            vp values[4];
            EI_UNROLL for (int j = 0; j < n; j++) values[j] = load_values(type, v, n == 1 ? half : j, j);
            EI_UNROLL for (int j = 0; j < n; j += 2) EI_FETCH(n_rows, after + 32 * j);
            EI_UNROLL for (int r = 0; r < n_rows; r++) {
                EI_UNROLL for (int j = 0; j < n; j++) acc[r * n + j] =
                    vp_dot(acc[r * n + j], values[j], weights + r * 2 * EI_SCORE_STRIDE + t->start[b] + i);
            }
        }
    }
    EI_UNROLL for (int r = 0; r < n_rows; r++) {
        EI_UNROLL for (int j = 0; j < n; j++) {
            size_t first = d + 16 * (size_t)j;
            store_dims(o + (size_t)r * dims + first, vf_mul(vf_from_vi(acc[r * n + j]), vf_set(by[r])),
                       (int32_t)(dims - first));
        }
    }
}

EI_INLINE void weigh_codes(int n_rows, int type, const attention_tile *t, const float *l, float *scores, float *o) {
    float by[EI_ATTENTION_ROWS];
    size_t dims = ei_padded(t->value_dim, 16);
    round_weights(t, n_rows, l, scores);
    for (size_t block = 0, d = 0; d < dims; block++) {
        weigh_block(t, n_rows, block, scores, by);
        if (EI_VECTORS_OF(n_rows) >= 2 && d + EI_BLOCK <= dims) {
            weigh_code_dims(n_rows, EI_VECTORS_OF(n_rows) >= 2 ? 2 : 1, type, t, scores, by, d, o);
            d += EI_BLOCK;
        } else {
            for (size_t end = d + EI_BLOCK < dims ? d + EI_BLOCK : dims; d < end; d += 16)
                weigh_code_dims(n_rows, 1, type, t, scores, by, d, o);
        }
    }
}
