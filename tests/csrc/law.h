/* tests/csrc/law.h: the arithmetic law of rows and attention in naive scalar C, written apart from the kernels.
 *
 * One value at a time, one position at a time, no vectors and no tiles: what every kernel must equal bit for bit.
 */
#ifndef LAW_H
#define LAW_H

#include "kernels.h"

/* Equal bits; two NaNs are equal whatever their payload, which IEEE leaves open. */
static inline bool same(float a, float b) { return f32_bits(a) == f32_bits(b) || (a != a && b != b); }

/* -- functions ------------------------------------------------------------------------------ */

static inline float law_exp(float x) {
    if (x != x) return x;
    if (x < -87.0f) return 0.0f;
    float t = fmaf(x, 0x1.715476p+0f, 12582912.0f);
    float n = t - 12582912.0f;
    float r = fmaf(-n, 0.693359375f, x);
    r = fmaf(-n, -2.12194440e-4f, r);
    static const float c[8] = {1.9875691500e-4f,
                               1.3981999507e-3f,
                               8.3334519073e-3f,
                               4.1665795894e-2f,
                               1.6666665459e-1f,
                               5.0000001201e-1f,
                               1.0f,
                               1.0f};
    float p = c[0];
    for (int i = 1; i < 8; i++) p = fmaf(p, r, c[i]);
    return f32_from_bits(f32_bits(p) + (f32_bits(t) << 23));
}

static inline float law_sigmoid(float x) {
    float t = law_exp(-fabsf(x));
    return x >= 0 ? 1.0f / (1.0f + t) : t / (1.0f + t);
}

static inline float law_tanh(float x) {
    float t = law_exp(-2.0f * fabsf(x));
    return copysignf((1.0f - t) / (1.0f + t), x);
}

static inline float law_softcap(float x, float cap) { return cap * law_tanh(x * (1.0f / cap)); }

static inline float law_gelu_tanh(float x) { return x * law_sigmoid(x * fmaf(x * x, 0.0713548163f, 1.59576912f)); }

static inline float law_gelu_erf(float x) {
    static const float c[9] = {0.0155853871f, -0.0455160365f, -0.00918818172f, 0.102801926f, -0.000910795992f,
                               0.114120379f,  0.0964797586f,  0.113847084f,    0.112780482f};
    float z = fabsf(x) * 0.707106781f, t = 1.0f / fmaf(0.4f, z, 1.0f), p = c[0];
    for (int i = 1; i < 9; i++) p = fmaf(p, t, c[i]);
    float tail = (p * t) * law_exp(-(z * z));
    return x * (x >= 0 ? 1.0f - tail : tail);
}

static inline float law_relu(float x) { return x < 0 ? 0.0f : x; }

static inline float law_softplus(float x) {
    float t = law_exp(-fabsf(x)), s = t / (2.0f + t), w = s * s;
    float p = fmaf(0.243009374f, w, 0.214276567f);
    p = fmaf(p, w, 0.286168844f);
    p = fmaf(p, w, 0.39998877f);
    p = fmaf(p, w, 0.666666746f);
    p = fmaf(p, w, 2.0f);
    return fmaf(s, p, law_relu(x));
}

static inline float law_function(int32_t fn, float x) {
    switch (fn) {
    case EI_SILU: return x * law_sigmoid(x);
    case EI_GELU_TANH: return law_gelu_tanh(x);
    case EI_GELU_ERF: return law_gelu_erf(x);
    case EI_RELU: return law_relu(x);
    case EI_RELU2: return law_relu(x) * law_relu(x);
    case EI_SIGMOID: return law_sigmoid(x);
    case EI_TANH: return law_tanh(x);
    default: return law_softplus(x);
    }
}

/* -- rows ----------------------------------------------------------------------------------- */

static inline float law_tree(const float lanes[16]) {
    float a[16];
    memcpy(a, lanes, sizeof a);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) a[i] += a[i + half];
    return a[0];
}

static inline void law_center(const float *x, float *y, int n) {
    float lanes[16] = {0};
    for (int i = 0; i < n; i++) lanes[i % 16] += x[i];
    float mean = law_tree(lanes) / (float)n;
    for (int i = 0; i < n; i++) y[i] = x[i] - mean;
}

static inline void law_rms_norm(const float *x, const float *weight, float *y, int n, float eps) {
    float lanes[16] = {0};
    for (int i = 0; i < n; i++) lanes[i % 16] = fmaf(x[i], x[i], lanes[i % 16]);
    float r = 1.0f / sqrtf(law_tree(lanes) / (float)n + eps);
    for (int i = 0; i < n; i++) y[i] = weight ? (x[i] * r) * weight[i] : x[i] * r;
}

static inline void law_softmax(const float *x, float *y, int n) {
    float lanes[16] = {0}, most = x[0];
    for (int i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int i = 0; i < n; i++) lanes[i % 16] += y[i] = law_exp(x[i] - most);
    float total = law_tree(lanes);
    for (int i = 0; i < n; i++) y[i] /= total;
}

typedef struct {
    int32_t q[16], low[16]; /* fine: the code is 128*q + low */
    float d, sum;
} law_run;

static inline law_run law_quantize(const float *x, bool fine) {
    law_run run = {.sum = 0};
    float amax = 0, most = fine ? 127 * 128 : 127;
    bool finite = true;
    for (int i = 0; i < 16; i++) {
        float a = fabsf(x[i]);
        finite = finite && a <= 0x1.fffffep+127f;
        /* NaN above infinity above every number */
        if (amax == amax && (a != a || a > amax)) amax = a;
    }
    run.d = amax / most;
    for (int i = 0; i < 16 && finite && amax >= 0x1p-112f; i++) {
        float code = rintf(x[i] * (most / amax));
        run.q[i] = (int32_t)(fine ? rintf(code / 128) : code);
        run.low[i] = fine ? (int32_t)code - 128 * run.q[i] : 0;
        run.sum += code;
    }
    return run;
}

static inline void law_turn(float *a, float *b, float c, float s) {
    float x = *a, y = *b;
    *a = fmaf(-y, s, x * c);
    *b = fmaf(y, c, x * s);
}

/* -- attention ------------------------------------------------------------------------------ */

/* One row's m, l, o; m = -inf: it saw nothing yet. */
typedef struct {
    float m, l, o[1024];
} law_partial;

/* The f16 number i of a plane, and the number of a plane of floats. */
static inline float law_f16(const uint8_t *plane, size_t i) { return f16_to_f32(load_u16(plane + 2 * i)); }
static inline float law_float(const ei_kv *kv, const uint8_t *plane, size_t i) {
    return kv->type == EI_KV_F32 ? f32_from_bits(load_u32(plane + 4 * i)) : law_f16(plane, i);
}

/* Which unit of 16 positions of the whole pool a position of the rows' head is in. */
static inline size_t law_unit(const ei_attention_rows *rows, int32_t position) {
    size_t head = (size_t)rows->pages[position / 64] * (size_t)rows->kv->n_kv_heads + (size_t)rows->kv_head;
    return head * 4 + (size_t)(position % 64 / 16);
}

static inline float law_key(const ei_attention_rows *rows, int32_t position, int32_t dim) {
    const ei_kv *kv = rows->kv;
    size_t unit = law_unit(rows, position);
    return law_float(kv, kv->keys, (unit * (size_t)kv->key_dim + (size_t)dim) * 16 + (size_t)(position % 16));
}

static inline float law_value(const ei_attention_rows *rows, int32_t position, int32_t dim) {
    const ei_kv *kv = rows->kv;
    size_t padded = ((size_t)kv->value_dim + 15) / 16 * 16, lane = (size_t)(position % 16);
    return law_float(kv, kv->values, (law_unit(rows, position) * 16 + lane) * padded + (size_t)dim);
}

/* -- codes -- */

typedef struct {
    int8_t q[32];
    float d;
} law_block;

/* Plane layouts: scales f16 [blocks, even][16], then codes s8 [dim/4][16][4] or [16/2][dim to 16s][2]; those of 4 bits
 * u4 [dim/8][16][4], the first 4 dims of 8 in the low halves, or [16/2][dim/32][16][2], the first 16 of 32 there. */
static inline size_t law_scales(int32_t dim) { return ((size_t)dim + 63) / 64 * 64; }

static inline size_t law_rounded(int32_t dim, size_t to) { return ((size_t)dim + to - 1) / to * to; }
static inline bool law_narrow(const ei_attention_rows *rows) { return rows->kv->type == EI_KV_Q4_0; }
static inline int32_t law_nibble(uint8_t byte, bool high) { return (high ? byte >> 4 : byte & 15) - 8; }

static inline const uint8_t *law_keys(const ei_attention_rows *rows, int32_t position) {
    int32_t dim = rows->kv->key_dim;
    size_t codes = law_narrow(rows) ? law_rounded(dim, 8) * 8 : law_rounded(dim, 4) * 16;
    return rows->kv->keys + law_unit(rows, position) * (law_scales(dim) + codes);
}
static inline int32_t law_key_code(const ei_attention_rows *rows, int32_t position, int32_t dim) {
    const uint8_t *at = law_keys(rows, position) + law_scales(rows->kv->key_dim) + position % 16 * 4 + dim % 4;
    return law_narrow(rows) ? law_nibble(at[dim / 8 * 64], dim % 8 >= 4) : (int8_t)at[dim / 4 * 64];
}
static inline float law_key_scale(const ei_attention_rows *rows, int32_t position, int32_t block) {
    return law_f16(law_keys(rows, position), (size_t)(block * 16 + position % 16));
}

/* bytes of a position */
static inline size_t law_value_row(const ei_attention_rows *rows) {
    return law_narrow(rows) ? law_rounded(rows->kv->value_dim, 32) / 2 : law_rounded(rows->kv->value_dim, 16);
}
static inline const uint8_t *law_values(const ei_attention_rows *rows, int32_t position) {
    return rows->kv->values + law_unit(rows, position) * (law_scales(rows->kv->value_dim) + 16 * law_value_row(rows));
}
static inline int32_t law_value_code(const ei_attention_rows *rows, int32_t position, int32_t dim) {
    size_t row = law_value_row(rows), pair = (size_t)(position % 16 / 2) * row * 2;
    const uint8_t *at = law_values(rows, position) + law_scales(rows->kv->value_dim) + pair + position % 2;
    return law_narrow(rows) ? law_nibble(at[dim / 32 * 32 + dim % 16 * 2], dim % 32 >= 16) : (int8_t)at[2 * dim];
}
static inline float law_value_scale(const ei_attention_rows *rows, int32_t position, int32_t block) {
    return law_f16(law_values(rows, position), (size_t)(block * 16 + position % 16));
}

static inline float law_largest(const float *x, int32_t n) {
    float amax = 0;
    for (int32_t i = 0; i < n; i++)
        if (amax == amax && !(fabsf(x[i]) <= amax)) amax = fabsf(x[i]);
    return amax;
}

/* n values of a key or a value. */
static inline law_block law_store_block(int32_t type, const float *x, int32_t n) {
    float amax = law_largest(x, n), d = amax / 127, least = -127, most = 127;
    if (type == EI_KV_Q4_0) {
        d = amax / 8, least = -8, most = 7;
        for (int32_t i = 0; i < n; i++)
            if (x[i] == amax) d = amax / -8;
    }
    law_block b = {.d = f16_to_f32(f32_to_f16(d))};
    if (!(fabsf(b.d) < INFINITY)) b.d = NAN;
    if (b.d == 0) b.d = 0;
    if (type == EI_KV_Q4_0) memset(b.q, -8, sizeof b.q); /* stored as 0 */
    for (int32_t i = 0; i < n && (b.d > 0 || b.d < 0); i++) {
        float code = x[i] * (1.0f / b.d);
        b.q[i] = (int8_t)rintf(code > most ? most : code < least ? least : code);
    }
    return b;
}

/* n values of a key, or of a query before it is quantized, as they are for this type of KV. */
static inline void law_turn_block(int32_t type, int32_t n, const float *x, float by, float *out) {
    memcpy(out, x, (size_t)n * sizeof *out);
    if (type != EI_KV_Q4_0 || n < 32) return;
    for (int32_t h = 1; h < 32; h *= 2) {
        float next[32];
        for (int32_t i = 0; i < 32; i++) next[i] = i & h ? out[i - h] - out[i] : out[i] + out[i + h];
        memcpy(out, next, sizeof next);
    }
    for (int32_t i = 0; i < 32; i++) out[i] *= by;
}

/* n values of a query, after the attention scale. */
static inline law_block law_query_block(int32_t type, const float *values, int32_t n) {
    float x[32];
    law_turn_block(type, n, values, 1.0f / 32, x);
    float amax = law_largest(x, n);
    law_block b = {.d = amax / 127};
    for (int32_t i = 0; i < n && amax >= 0x1p-112f && amax < INFINITY; i++) b.q[i] = (int8_t)rintf(x[i] * (127 / amax));
    return b;
}

/* The law takes the row's query as it was before it was prepared: scaled floats. */
static inline float law_score(const ei_attention_rows *rows, const float *q, int32_t row, int32_t position) {
    float s = 0;
    int32_t dims = rows->kv->key_dim;
    q += (size_t)row * (size_t)dims;
    if (rows->kv->type <= EI_KV_F16)
        for (int32_t d = 0; d < dims; d++) s = fmaf(q[d], law_key(rows, position, d), s);
    else
        for (int32_t d = 0; d < dims; d += 32) {
            int32_t n = dims - d < 32 ? dims - d : 32, sum = 0;
            law_block b = law_query_block(rows->kv->type, q + d, n);
            for (int32_t i = 0; i < n; i++) sum += b.q[i] * law_key_code(rows, position, d + i);
            s = fmaf((float)sum, b.d * law_key_scale(rows, position, d / 32), s);
        }
    if (rows->softcap > 0) s = law_softcap(s, rows->softcap);
    return rows->slopes ? fmaf(-rows->slopes[row], fabsf((float)(rows->position[row] - position)), s) : s;
}

/* One dim of the output from the weights of positions low .. high-1. */
static inline float law_weighed(const ei_attention_rows *rows, const float *w, int32_t low, int32_t high, int32_t d) {
    float o = 0, dmax = 0;
    if (rows->kv->type <= EI_KV_F16) {
        for (int32_t p = low; p < high; p++) o = fmaf(w[p - low], law_value(rows, p, d), o);
        return o;
    }
    int64_t sum = 0;
    for (int32_t p = low; p < high; p++) {
        float dv = fabsf(law_value_scale(rows, p, d / 32));
        if (dmax == dmax && !(dv <= dmax)) dmax = dv;
    }
    for (int32_t p = low; p < high && dmax > 0; p++) {
        int64_t f = (int64_t)rintf(law_value_scale(rows, p, d / 32) * (32767 / dmax));
        int64_t weight = ((int64_t)rintf(w[p - low] * 32767) * f + 16384) >> 15;
        sum += weight * law_value_code(rows, p, d);
    }
    return (float)sum * (dmax * (float)(32768.0 / (32767.0 * 32767.0)));
}

static inline void law_chunk(const ei_attention_rows *rows, const float *q, int32_t row, int32_t chunk,
                             law_partial *to) {
    float score[EI_CHUNK_LEN], lanes[16] = {0};
    int32_t start = chunk * EI_CHUNK_LEN, low = rows->first[row], high = rows->last[row] + 1;
    if (low < start) low = start;
    if (high > start + EI_CHUNK_LEN) high = start + EI_CHUNK_LEN;
    to->m = -INFINITY;
    to->l = 0;
    memset(to->o, 0, sizeof to->o);
    if (low >= high) return;
    for (int32_t p = low; p < high; p++) {
        score[p - low] = law_score(rows, q, row, p);
        if (score[p - low] > to->m) to->m = score[p - low];
    }
    for (int32_t p = low; p < high; p++) {
        score[p - low] = law_exp(score[p - low] - to->m);
        lanes[p % 16] += score[p - low];
    }
    to->l = law_tree(lanes);
    if (to->l != to->l) { /* a NaN among the scores must not pass for "saw nothing" */
        to->m = to->l;
        if (rows->kv->type > EI_KV_F16) memset(score, 0, sizeof score);
    }
    for (int32_t d = 0; d < rows->kv->value_dim; d++) to->o[d] = law_weighed(rows, score, low, high, d);
}

static inline void law_merge(law_partial *to, const law_partial *chunk, int32_t value_dim) {
    if (chunk->m == -INFINITY) return;
    if (to->m == -INFINITY) {
        *to = *chunk;
        return;
    }
    float m = to->m > chunk->m ? to->m : chunk->m, a = law_exp(to->m - m), b = law_exp(chunk->m - m);
    to->l = fmaf(to->l, a, chunk->l * b);
    for (int32_t d = 0; d < value_dim; d++) to->o[d] = fmaf(to->o[d], a, chunk->o[d] * b);
    to->m = m;
}

/* The whole of one row: chunks left to right, then the sink. */
static inline void law_attention(const ei_attention_rows *rows, const float *q, const float *sinks, int32_t row,
                                 float *out) {
    law_partial total = {.m = -INFINITY}, part;
    for (int32_t c = rows->first[row] / EI_CHUNK_LEN; c <= rows->last[row] / EI_CHUNK_LEN; c++) {
        law_chunk(rows, q, row, c, &part);
        law_merge(&total, &part, rows->kv->value_dim);
    }
    float a = 1.0f, l = total.l;
    if (sinks) {
        float sink = sinks[row], m = total.m > sink ? total.m : sink;
        a = law_exp(total.m - m);
        l = fmaf(l, a, law_exp(sink - m));
    }
    float by = (1.0f / l) * a;
    for (int32_t d = 0; d < rows->kv->value_dim; d++) out[d] = total.o[d] * by;
}

#endif
