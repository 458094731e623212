/* edgeinfer/csrc/kernels.h: what a kernel is given, and the table that holds one pointer per kernel.
 *
 * Every kernel obeys the arithmetic law (formats.h, ops/math_template.h, ops/attention_template.h):
 * equal inputs give equal bits whatever the ISA, the number of columns or the order of calls.
 */
#ifndef EI_KERNELS_H
#define EI_KERNELS_H

#include "base.h"
#include "formats.h"

/* Activations of n tokens, quantized for the integer kernels: one form for every weight format.
 *
 * Tokens stand in tiles of EI_TILE; the last tile is as wide as its tokens (w = min(8, n - 8*tile)).
 * Inside a tile, column t:   q     dword [k/4][w]   four s8 of k .. k+3
 *                            low   dword [k/4][w]   NULL, or for fine activations: x ~ d*(128*q + low)
 *                            words qword [k/4][w]   fine activations where the kernels want words (fine_words), in
 *                                                   the place of q and low: int16 of k, k+2, k+1, k+3; 8-bit
 *                                                   codes stand there besides q for formats of signed codes
 *                            d     f32   [k/16][w]  scale: max|x| / 127, or max|x| / (127*128)
 *                            sums  f32   [k/16][w]  sum of the 16 q (of 128*q + low), an integer
 *                            ds    f32   [k/32][w]  d*sum of the first 16 plus d*sum of the second
 * x is the same tiling of the f32 values, [k][w], for float weights; NULL where no consumer needs it.
 * A tile begins at 8*tile*(elements per token) of each plane.
 */
typedef struct {
    int32_t n_tokens;
    int32_t width; /* K: elements per token, a multiple of 32 when q is used */
    int8_t *q, *low;
    int16_t *words;
    bool fine;
    float *d, *sums, *ds;
    float *x;
} ei_acts;

/* One token's place in those planes. */
typedef struct {
    int32_t w; /* tokens of the tile: the stride between neighbours of one token */
    int8_t *q, *low;
    int16_t *words;
    bool fine;
    float *d, *sums, *ds, *x;
} ei_column;

EI_INLINE ei_column column_of(const ei_acts *acts, int32_t token) {
    int32_t tile = token / EI_TILE, column = token % EI_TILE;
    size_t start = (size_t)tile * EI_TILE * (size_t)acts->width;
    return (ei_column){
        .w = min_i32(EI_TILE, acts->n_tokens - tile * EI_TILE),
        .q = acts->q ? acts->q + start + 4 * column : NULL,
        .low = acts->low ? acts->low + start + 4 * column : NULL,
        .words = acts->words ? acts->words + start + 4 * column : NULL,
        .fine = acts->fine,
        .d = acts->d ? acts->d + start / EI_RUN_LEN + column : NULL,
        .sums = acts->d ? acts->sums + start / EI_RUN_LEN + column : NULL,
        .ds = acts->d ? acts->ds + start / EI_BLOCK + column : NULL,
        .x = acts->x ? acts->x + start + column : NULL,
    };
}
/* How keys and values are stored; the order is shared with Python */
enum { EI_KV_F32, EI_KV_F16, EI_KV_Q8_0, EI_KV_Q4_0, EI_N_KV_TYPES };

/* One KV layer's pages. A page holds 64 positions of every KV head, head after head, in units of 16 positions:
 *   f32   keys    f32 [key_dim][16]                        lane = position mod 16
 *         values  f32 [16][value_dim, to a multiple of 16]
 *   f16   the same of f16
 *   q8_0  keys    scales f16 [key_dim/32, to an even number][16], then s8 [key_dim/4][16][4]
 *         values  scales f16 [value_dim/32, to an even number][16], then s8 [16/2][value_dim, to 16s][2]
 *   q4_0  keys    scales as q8_0, then of each pair of q8_0's groups of 4 dims the codes + 8, the first in the low half
 *                 of a byte: u4 [key_dim/8][16][4]; a block whose scale is 0 or NaN is all 0
 *         values  the same of each block's two halves: u4 [16/2][value_dim/32][16][2]
 * Page p begins p times the stride further. The executor lays the pages of all layers with one id side by side, so
 * that a short sequence touches little memory however large the pool is.
 */
typedef struct {
    uint8_t *keys, *values;
    size_t key_stride, value_stride; /* bytes from one page to the next */
    int32_t type;                    /* EI_KV_* */
    int32_t n_kv_heads, key_dim, value_dim;
    int32_t place; /* -1, or the layer in whose pages this one lies */
} ei_kv;

EI_INLINE size_t ei_padded(int32_t n, int32_t to) { return (size_t)((n + to - 1) / to * to); }

/* Bytes of a number that is kept as a float; 0 where codes are kept. */
EI_INLINE size_t ei_float_bytes(int32_t type) { return type == EI_KV_F32 ? 4 : type == EI_KV_F16 ? 2 : 0; }

/* Bytes of one unit, of one KV head; of the codes' scales at its start; and words of 4 bytes of a prepared query. */
EI_INLINE size_t ei_scale_bytes(int32_t dim) { return ei_padded(dim, 2 * EI_BLOCK); }
EI_INLINE size_t ei_key_unit(const ei_kv *kv) {
    size_t size = ei_float_bytes(kv->type);
    if (size) return 16 * size * (size_t)kv->key_dim;
    return ei_scale_bytes(kv->key_dim) +
           (kv->type == EI_KV_Q4_0 ? 8 * ei_padded(kv->key_dim, 8) : 16 * ei_padded(kv->key_dim, 4));
}
/* of the codes of two positions' values */
EI_INLINE size_t ei_value_pair(const ei_kv *kv) {
    return kv->type == EI_KV_Q4_0 ? ei_padded(kv->value_dim, EI_BLOCK) : 2 * ei_padded(kv->value_dim, 16);
}
EI_INLINE size_t ei_value_unit(const ei_kv *kv) {
    size_t size = ei_float_bytes(kv->type);
    if (size) return 16 * size * ei_padded(kv->value_dim, 16);
    return ei_scale_bytes(kv->value_dim) + 8 * ei_value_pair(kv);
}
EI_INLINE size_t ei_query_words(const ei_kv *kv) {
    if (ei_float_bytes(kv->type)) return (size_t)kv->key_dim;
    return ei_padded(kv->key_dim, 4) / 4 + 2 * (ei_padded(kv->key_dim, EI_BLOCK) / EI_BLOCK);
}

/* Query rows of one KV head. Row r is one query head of one token, which stands at position[r] and sees
 * first[r] .. last[r]; all are absolute positions of one sequence whose pages are listed in pages. */
typedef struct {
    const ei_kv *kv;
    const int32_t *pages; /* page id of positions 64*i .. 64*i+63 */
    int32_t kv_head;
    int32_t n_rows;
    const float *q; /* n_rows of ei_query_words, prepared */
    const int32_t *first, *last, *position;
    float softcap;       /* 0: none */
    const float *slopes; /* of each row, times the distance taken from the score; or NULL */
} ei_attention_rows;

/* Columns that are so few that a matmul waits for memory, the places it then reads ahead from, and the most columns a
 * call may have: what they need fits in L2 beside the weights. */
enum { EI_FEW_COLUMNS = 2, EI_STREAMS = 4, EI_WIDE = 32 };

/* out[c*16 + lane] for n columns, tokens `token` (a multiple of EI_TILE) and those after it. With few columns a quarter
 * of a group's bytes is fetched from each of the four addresses on, whatever lies there: fetching never fails. */
typedef void (*ei_matmul_fn)(const void *group, const char *const *fetch, const ei_acts *acts, int32_t token, int32_t n,
                             float *out);

/* Read ahead from `next` on, where a group of so many bytes stands. */
EI_INLINE void ei_fetch_group(const void *next, size_t group_bytes, const char *fetch[EI_STREAMS]) {
    for (int s = 0; s < EI_STREAMS; s++) fetch[s] = (const char *)next + group_bytes / EI_STREAMS * (size_t)s;
}

/* 16 file rows -> one X group, as repack.c does it */
typedef void (*ei_repack_fn)(const uint8_t *rows, size_t row_bytes, uint8_t *group);

/* Rows of floats to encode: (n_rows, n_columns) of them, at most EI_LANES rows, into n_rows of row_bytes. importance: a
 * weight for each column, or NULL. for_logits: they are rows of what logits are made of. */
typedef struct {
    const float *x, *importance;
    uint8_t *out;
    size_t row_bytes;
    int64_t n_columns;
    int32_t n_rows;
    bool for_logits;
} ei_encode_rows;

/* false: NaN, infinity or more than the format holds was among them, and the bytes mean nothing */
typedef bool (*ei_encode_fn)(const ei_encode_rows *rows);

/* fn of act and gated; the order is shared with Python */
enum { EI_SILU, EI_GELU_TANH, EI_GELU_ERF, EI_RELU, EI_RELU2, EI_SIGMOID, EI_TANH, EI_SOFTPLUS, EI_N_FUNCTIONS };
/* what a gate may be besides */
enum { EI_SWIGLU_OAI = EI_N_FUNCTIONS };

/* What one row gives to one head: x of the columns at hand, b and c of the rows of the state. */
typedef struct {
    const float *x, *b, *c;
    float dt, dt_bias, a, d;
} ei_scan;

/* v of the columns at hand, q and k of the rows of the state; q is multiplied by scale. */
typedef struct {
    const float *q, *k, *v;
    float scale, g, beta;
} ei_delta;

typedef struct {
    const char *isa;
    const ei_repack_fn *repack;      /* [format]; NULL: the format has none of its own */
    const ei_encode_fn *encode;      /* [format]; NULL: there is no encoder */
    bool fine_words;                 /* fine activations are words, not two planes */
    const ei_matmul_fn (*matmul)[2]; /* [format][fine] */

    /* rows of floats */
    void (*quantize)(const float *x, int32_t token, ei_acts *acts); /* one token's row into every plane acts has */
    /* 32*n_blocks values of one token, from element first (a multiple of 32), into the planes */
    void (*quantize_part)(const float *x, int32_t token, int32_t first, int32_t n_blocks, ei_acts *acts);
    void (*from_f16)(const uint16_t *x, float *y, int64_t n);
    /* y = x - mean(x); y may be x */
    void (*center)(const float *x, float *y, int32_t n);
    /* weight NULL: 1; y may be x */
    void (*rms_norm)(const float *x, const float *weight, float *y, int32_t n, float eps);
    /* y = a + alpha*b, two roundings */
    void (*add)(const float *a, const float *b, float alpha, float *y, int32_t n);
    void (*multiply)(const float *a, const float *b, float *y, int32_t n);
    /* softcap*tanh(by*x/softcap), or by*x without one */
    void (*scale)(const float *x, float by, float softcap, float *y, int32_t n);
    /* y = y + by*x, one rounding */
    void (*accumulate)(const float *x, float by, float *y, int32_t n);
    void (*softmax)(const float *x, float *y, int32_t n);
    void (*act)(int32_t fn, const float *x, float *y, int32_t n);
    void (*gated)(int32_t fn, const float *gate, const float *up, float *y, int32_t n);
    /* g*sigmoid(alpha*g) * (u + 1), g = gate up to limit, u = up within +-limit */
    void (*swiglu_oai)(const float *gate, const float *up, float alpha, float limit, float *y, int32_t n);
    /* n_heads heads of dim; the first 2*n_pairs of each turn. interleaved: pairs (2i, 2i+1), else (i, i+n_pairs) */
    void (*rope)(float *x, int32_t n_heads, int32_t dim, int32_t n_pairs, int32_t interleaved, const float *cosines,
                 const float *sines);

    /* attention; scratch of EI_ATTENTION_SCRATCH floats per thread */
    /* one head's query as attention_chunk takes it, multiplied by the attention scale */
    void (*attention_query)(const ei_kv *kv, const float *q, float scale, float *out);
    /* all heads of one token */
    void (*kv_store)(const ei_kv *kv, int32_t page, int32_t slot, const float *k, const float *v);
    /* partial results of positions chunk*256 .. : m, l (n_rows), o (n_rows, value_dim); m = -inf: the row sees none */
    void (*attention_chunk)(const ei_attention_rows *rows, int32_t chunk, float *m, float *l, float *o, float *scratch);
    void (*attention_merge)(int32_t value_dim, float *m, float *l, float *o, float mc, float lc, const float *oc);
    void (*attention_finish)(int32_t value_dim, float m, float l, const float *o, const float *sink, float *out);

    /* recurrences, one row and one head at a time; state: rows of n columns, `stride` floats apart */
    /* y = sum of taps[j] * weight[j], the rows of weight `stride` floats apart; bias NULL: none */
    void (*convolve)(const float *const *taps, int32_t n_taps, const float *weight, int32_t stride, const float *bias,
                     float *y, int32_t n);
    void (*scan)(const float *from, float *state, int32_t stride, int32_t n_rows, int32_t n, const ei_scan *in,
                 float *y);
    void (*delta)(const float *from, float *state, int32_t stride, int32_t n_rows, int32_t n, const ei_delta *in,
                  float *y);

    /* the roof of this level: multiply-adds on registers alone, EI_PEAK_*; returns how many were done */
    int64_t (*peak)(int32_t kind, int64_t n_turns);
} ei_kernels;

/* Most rows one attention_chunk call may get, and the scratch it needs. */
enum { EI_ATTENTION_ROWS = 48, EI_ATTENTION_SCRATCH = EI_ATTENTION_ROWS * (EI_CHUNK_LEN + 16) };

/* cos and sin of position*inv_freq[i], times mscale: computed in double by our own sequence, so the same everywhere */
void ei_rope_row(int32_t position, const float *inv_freq, int32_t n, float mscale, float *cosines, float *sines);

/* The table of a level by name ("scalar", "avx2", "avxvnni", "avx512", "neon", "i8mm"), or NULL when this build or CPU
 * lacks it. */
const ei_kernels *ei_kernels_of(const char *isa);

#endif
