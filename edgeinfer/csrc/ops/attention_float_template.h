/* edgeinfer/csrc/ops/attention_float_template.h: keys and values of floats, of 32 or 16 bits, stored, scored and
 * weighed.
 *
 * Included by attention_template.h. The law: for each dim in order s = fma(q[d], k[d], s), from 0;
 * for each position in order o = fma(w, v, o), from 0. The functions take the type as a constant.
 */

/* 16 numbers of a plane, from number i on. */
EI_INLINE vf floats_at(int type, const uint8_t *plane, size_t i) {
    if (type == EI_KV_F32) return vf_load((const float *)(const void *)plane + i);
    return vf_from_f16((const uint16_t *)(const void *)plane + i);
}

/* 16 numbers as they are kept. */
EI_INLINE void keep_floats(int type, uint8_t *to, vf x) {
    if (type == EI_KV_F32)
        vf_store((float *)(void *)to, x);
    else
        vf_to_f16((uint16_t *)(void *)to, x);
}

/* One position of one head. What lies beyond the range of f16 becomes infinite there. An infinite value makes every row
 * that sees it non-finite; an infinite key does so unless its score is -inf, whose weight is rightly 0. */
EI_INLINE void store_floats(int type, const ei_kv *kv, uint8_t *keys, uint8_t *values, int32_t lane, const float *k,
                            const float *v) {
    const size_t size = ei_float_bytes(type);
    uint8_t kept[64];
    keys += (size_t)lane * size;
    values += (size_t)lane * ei_padded(kv->value_dim, 16) * size;
    for (int32_t d = 0; d < kv->key_dim; d += 16) {
        int32_t n = min_i32(16, kv->key_dim - d);
        keep_floats(type, kept, vf_load_n(k + d, n));
        for (int32_t i = 0; i < n; i++) memcpy(keys + (size_t)(d + i) * 16 * size, kept + (size_t)i * size, size);
    }
    for (int32_t d = 0; d < kv->value_dim; d += 16)
        keep_floats(type, values + (size_t)d * size, vf_load_n(v + d, min_i32(16, kv->value_dim - d)));
}
static void store_f32(const ei_kv *kv, uint8_t *keys, uint8_t *values, int32_t lane, const float *k, const float *v) {
    store_floats(EI_KV_F32, kv, keys, values, lane, k, v);
}
static void store_f16(const ei_kv *kv, uint8_t *keys, uint8_t *values, int32_t lane, const float *k, const float *v) {
    store_floats(EI_KV_F16, kv, keys, values, lane, k, v);
}

static void prepare_floats(int32_t key_dim, const float *q, float scale, float *out) {
    vf by = vf_set(scale);
    for (int32_t d = 0; d < key_dim; d += 16) {
        int32_t n = min_i32(16, key_dim - d);
        vf_store_n(out + d, vf_mul(vf_load_n(q + d, n), by), n);
    }
}

/* Beside the accumulators stay either the vectors or, where they are fewer registers, the rows' factors. */
EI_INLINE void score_dim(int n_rows, int n, int type, vf *acc, const float *q, size_t q_stride,
                         const uint8_t *const *keys, size_t d) {
    if (n_rows < 2 * n) {
        vf x[EI_ATTENTION_VECTORS];
        EI_UNROLL for (int r = 0; r < n_rows; r++) x[r] = vf_set(q[(size_t)r * q_stride + d]);
        EI_UNROLL for (int j = 0; j < n; j++) {
            vf k = floats_at(type, keys[j], d * 16);
            EI_UNROLL for (int r = 0; r < n_rows; r++) acc[r * n + j] = vf_fma(x[r], k, acc[r * n + j]);
        }
        return;
    }
    vf k[4];
    EI_UNROLL for (int j = 0; j < n; j++) k[j] = floats_at(type, keys[j], d * 16);
    EI_UNROLL for (int r = 0; r < n_rows; r++) {
        vf x = vf_set(q[(size_t)r * q_stride + d]);
        EI_UNROLL for (int j = 0; j < n; j++) acc[r * n + j] = vf_fma(x, k[j], acc[r * n + j]);
    }
}

/* Scores of n blocks from block b on. */
EI_INLINE void score_blocks(int n_rows, int n, int type, const attention_tile *t, int32_t b, const float *q,
                            float *scores) {
    vf acc[EI_ATTENTION_VECTORS];
    const size_t size = ei_float_bytes(type);
    size_t dims = (size_t)t->key_dim, d = 0;
    const uint8_t *keys[4], *after[4];
    EI_UNROLL for (int j = 0; j < n; j++) keys[j] = t->keys[b + j], after[j] = t->after_keys[b + j];
    EI_UNROLL for (int i = 0; i < n_rows * n; i++) acc[i] = vf_zero();
    for (; d + 2 <= dims; d += 2) {
        EI_UNROLL for (int j = 0; j < n; j++) {
            EI_FETCH(n_rows, after[j] + d * 16 * size);
            if (size == 4) EI_FETCH(n_rows, after[j] + (d + 1) * 16 * size);
        }
        score_dim(n_rows, n, type, acc, q, dims, keys, d);
        score_dim(n_rows, n, type, acc, q, dims, keys, d + 1);
    }
    if (d < dims) score_dim(n_rows, n, type, acc, q, dims, keys, d);
    EI_UNROLL for (int r = 0; r < n_rows; r++) {
        EI_UNROLL for (int j = 0; j < n; j++) vf_store(scores + r * EI_SCORE_STRIDE + t->start[b + j], acc[r * n + j]);
    }
}

EI_INLINE void score_floats(int n_rows, int type, const attention_tile *t, const float *q, float *scores) {
    const int n = EI_VECTORS_OF(n_rows);
    int32_t b = 0;
    for (; b + n <= t->n_blocks; b += n) score_blocks(n_rows, n, type, t, b, q, scores);
    for (; n > 1 && b < t->n_blocks; b++) score_blocks(n_rows, 1, type, t, b, q, scores);
}

/* One position of block b: o += weight * value, for the rows that see it. */
EI_INLINE void weigh_position(int n_rows, int n, int type, const attention_tile *t, int32_t b, int32_t i, vf *acc,
                              const float *weights, size_t d, bool whole) {
    const uint8_t *values = t->values[b];
    size_t at = (size_t)i * ei_padded(t->value_dim, 16) + d;
    int32_t position = t->start[b] + i;
    if (whole && n_rows < 2 * n) {
        vf w[EI_ATTENTION_VECTORS];
        EI_UNROLL for (int r = 0; r < n_rows; r++) w[r] = vf_set(weights[r * EI_SCORE_STRIDE + position]);
        EI_UNROLL for (int j = 0; j < n; j++) {
            vf v = floats_at(type, values, at + 16 * (size_t)j);
            EI_UNROLL for (int r = 0; r < n_rows; r++) acc[r * n + j] = vf_fma(w[r], v, acc[r * n + j]);
        }
        return;
    }
    vf v[4];
    EI_UNROLL for (int j = 0; j < n; j++) v[j] = floats_at(type, values, at + 16 * (size_t)j);
    EI_UNROLL for (int r = 0; r < n_rows; r++) {
        if (whole || (position >= t->low[r] && position < t->high[r])) {
            vf w = vf_set(weights[r * EI_SCORE_STRIDE + position]);
            EI_UNROLL for (int j = 0; j < n; j++) acc[r * n + j] = vf_fma(w, v[j], acc[r * n + j]);
        }
    }
}

/* n vectors of the output from dim d on, of which only the last may be short. */
EI_INLINE void weigh_dims(int n_rows, int n, int type, const attention_tile *t, const float *weights, size_t d,
                          float *o) {
    const size_t size = ei_float_bytes(type);
    vf acc[EI_ATTENTION_VECTORS];
    size_t dims = (size_t)t->value_dim, row = ei_padded(t->value_dim, 16) * size;
    EI_UNROLL for (int i = 0; i < n_rows * n; i++) acc[i] = vf_zero();
    for (int32_t b = 0; b < t->n_blocks; b++) {
        const uint8_t *after = t->after_values[b] + d * size;
        if (t->whole[b]) {
            for (int32_t i = 0; i < 16; i++) {
                EI_UNROLL for (int j = 0; j < n; j += size == 4 ? 1 : 2)
                    EI_FETCH(n_rows, after + (size_t)i * row + 16 * size * (size_t)j);
                weigh_position(n_rows, n, type, t, b, i, acc, weights, d, true);
            }
        } else {
            for (int32_t i = 0; i < 16; i++) weigh_position(n_rows, n, type, t, b, i, acc, weights, d, false);
        }
    }
    EI_UNROLL for (int r = 0; r < n_rows; r++) {
        EI_UNROLL for (int j = 0; j < n; j++) {
            size_t at = d + 16 * (size_t)j;
            store_dims(o + (size_t)r * dims + at, acc[r * n + j], (int32_t)(dims - at));
        }
    }
}

EI_INLINE void weigh_floats(int n_rows, int type, const attention_tile *t, const float *weights, float *o) {
    const int n = EI_VECTORS_OF(n_rows);
    size_t d = 0, dims = ei_padded(t->value_dim, 16);
    for (; d + 16 * (size_t)n <= dims; d += 16 * (size_t)n) weigh_dims(n_rows, n, type, t, weights, d, o);
    for (; n > 1 && d < dims; d += 16) weigh_dims(n_rows, 1, type, t, weights, d, o);
}
