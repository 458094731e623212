/* tests/csrc/test_matmul.c: every ISA's matmul equals the scalar one bit for bit, whatever company a token is in.
 *
 * The scalar kernels are compared with the law in tests/kernels/test_matmul.py.
 */
#include "edgeinfer.h"
#include "inputs.h"
#include "law.h"

/* up to two whole tiles one by one, then what takes more than one call of a kernel */
static const int32_t token_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 37};
enum { N_TOKEN_COUNTS = sizeof token_counts / sizeof *token_counts };

/* Where the f16 fields of a format's block stand; -1: none. Missing: MXFP4 and NVFP4 have bytes, IQ1_M spreads it. */
static const struct {
    int32_t format, d, m;
} scale_fields[] = {
    {EI_Q4_0, 0, -1},   {EI_Q4_1, 0, 2},    {EI_Q5_0, 0, -1},    {EI_Q5_1, 0, 2},    {EI_Q8_0, 0, -1},
    {EI_IQ4_NL, 0, -1}, {EI_Q2_K, 80, 82},  {EI_Q3_K, 108, -1},  {EI_Q4_K, 0, 2},    {EI_Q5_K, 0, 2},
    {EI_Q6_K, 208, -1}, {EI_IQ4_XS, 0, -1}, {EI_TQ1_0, 52, -1},  {EI_TQ2_0, 64, -1}, {EI_IQ2_XXS, 0, -1},
    {EI_IQ2_XS, 0, -1}, {EI_IQ2_S, 0, -1},  {EI_IQ3_XXS, 0, -1}, {EI_IQ3_S, 0, -1},  {EI_IQ1_S, 0, -1},
};

static float random_scale(bool extreme) {
    static const float scales[] = {0.0f, -0.0f, 6e-8f, -1e-6f, 1.0f, -3000.0f, 60000.0f};
    return extreme ? scales[random_below(7)] : random_unit();
}

static void put_f16(uint8_t *at, float x) {
    uint16_t h = f32_to_f16(x);
    memcpy(at, &h, 2);
}

static void put_iq1_m(block_iq1_m *b, float x) {
    uint16_t h = f32_to_f16(x);
    for (int i = 0; i < 4; i++) b->scales[i] = (uint16_t)((b->scales[i] & 0xfff) | (h >> (4 * i) & 15) << 12);
}

/* Blocks of random bits, or of the largest and smallest codes and odd scales. */
static void fill_blocks(uint8_t *to, int32_t format, size_t n_bytes, bool extreme) {
    const ei_format *f = &ei_format_rows[format];
    for (size_t at = 0; at < n_bytes; at += (size_t)f->block_bytes) {
        uint8_t *block = to + at;
        int32_t kind = extreme ? random_below(4) : 3;
        for (int32_t i = 0; i < f->block_bytes; i++)
            block[i] = kind == 0 ? 0xff : kind == 1 ? 0x80 : kind == 2 ? 0 : (uint8_t)random_u32();
        if (format == EI_F32) {
            float x = random_unit() * (extreme ? 1e18f : 1.0f);
            memcpy(block, &x, 4);
        } else if (format == EI_F16 || format == EI_BF16) {
            uint32_t bits = f32_bits(random_unit() * (extreme ? 6e4f : 1.0f));
            put_f16(block, f32_from_bits(bits));
            if (format == EI_BF16) block[0] = (uint8_t)(bits >> 16), block[1] = (uint8_t)(bits >> 24);
        }
        if (format == EI_IQ1_M) put_iq1_m((block_iq1_m *)block, random_scale(extreme));
        for (size_t i = 0; i < sizeof scale_fields / sizeof *scale_fields; i++) {
            if (scale_fields[i].format != format) continue;
            put_f16(block + scale_fields[i].d, random_scale(extreme));
            if (scale_fields[i].m >= 0) put_f16(block + scale_fields[i].m, random_scale(extreme));
        }
    }
}

/* Extreme: every code at its limit, runs of zero, of tiny and of huge values, now and then a NaN or an infinity. */
static void fill_x(float *x, int32_t n_tokens, int32_t n_columns, bool extreme) {
    static const float sizes[] = {0.0f, 1e-40f, 1e-30f, 1.0f, 1e15f};
    for (int32_t run = 0; run < n_tokens * n_columns / 16; run++) {
        float size = extreme ? sizes[random_below(5)] : 1.0f;
        for (int32_t i = 0; i < 16; i++)
            x[16 * run + i] = size * (!extreme ? random_unit() : random_u32() & 1 ? 127.0f : -127.0f);
        if (extreme && random_below(50) == 0) x[16 * run + random_below(16)] = random_below(2) ? NAN : -INFINITY;
    }
}

typedef struct {
    int32_t format, n_rows, n_columns, fine;
    guarded file, x;
} problem;

/* y of tokens first .. first+n-1, computed in one call. */
static void multiply(const char *isa, const problem *p, int32_t first, int32_t n, float *y) {
    const float *x = (const float *)p->x.data + (size_t)first * (size_t)p->n_columns;
    int32_t status = ei_matmul(isa, p->format, p->n_rows, p->n_columns, p->file.data, n, x, p->fine, y);
    EXPECT(status == EI_OK, "%s: status %d", isa, status);
}

static void expect_same(const char *isa, const problem *p, const char *what, int32_t n_tokens, const float *got,
                        const float *want) {
    for (int32_t i = 0; i < n_tokens * p->n_rows; i++)
        EXPECT(same(got[i], want[i]), "%s %s %s fine %d, K %d, token %d/%d, row %d/%d: %a, scalar %a", isa,
               ei_format_rows[p->format].name, what, p->fine, p->n_columns, i / p->n_rows, n_tokens, i % p->n_rows,
               p->n_rows, got[i], want[i]);
}

static void test_problem(const problem *p, int32_t n_tokens) {
    size_t bytes = (size_t)n_tokens * (size_t)p->n_rows * sizeof(float);
    guarded gw = guarded_new(bytes), gy = guarded_new(bytes);
    float *want = gw.data, *y = gy.data;
    for (int32_t t = 0; t < n_tokens; t++) multiply("scalar", p, t, 1, want + t * p->n_rows);
    for (int i = 0; i < N_ISA_NAMES; i++) {
        if (!kernels_to_test(i)) continue;
        multiply(isa_names[i], p, 0, n_tokens, y);
        expect_same(isa_names[i], p, "together", n_tokens, y, want);
        int32_t cut = random_below(n_tokens);
        if (cut) multiply(isa_names[i], p, 0, cut, y);
        multiply(isa_names[i], p, cut, n_tokens - cut, y + cut * p->n_rows);
        expect_same(isa_names[i], p, "in two parts", n_tokens, y, want);
    }
    guarded_free(gw), guarded_free(gy);
}

/* File and activations both end at an unreadable page. */
static void test_format(int32_t format, bool extreme, bool fine) {
    static const int32_t rows[] = {1, 15, 16, 17, 33};
    int32_t unit = max_i32(EI_BLOCK, ei_format_rows[format].block_len);
    for (int32_t i = 0; i < N_TOKEN_COUNTS; i++) {
        int32_t n_tokens = token_counts[i];
        problem p = {.format = format, .fine = fine, .n_rows = rows[n_tokens % 5]};
        p.n_columns = unit * (1 + random_below(unit > EI_BLOCK ? 2 : n_tokens < 16 ? 5 : 12));
        size_t bytes = (size_t)p.n_rows * (size_t)(p.n_columns / ei_format_rows[format].block_len) *
                       (size_t)ei_format_rows[format].block_bytes;
        p.file = guarded_new(bytes);
        p.x = guarded_new((size_t)n_tokens * (size_t)p.n_columns * sizeof(float));
        fill_blocks(p.file.data, format, bytes, extreme);
        fill_x(p.x.data, n_tokens, p.n_columns, extreme);
        test_problem(&p, n_tokens);
        guarded_free(p.file), guarded_free(p.x);
    }
}

/* Float formats take any number of columns, and the smallest one is 1. */
static void test_few_columns(void) {
    for (int32_t format = EI_F32; format <= EI_BF16; format++)
        for (int32_t n_columns = 1; n_columns <= 19; n_columns++) {
            problem p = {.format = format, .n_rows = 18, .n_columns = n_columns};
            size_t bytes = 18 * (size_t)n_columns * (size_t)ei_format_rows[format].block_bytes;
            p.file = guarded_new(bytes);
            p.x = guarded_new(9 * (size_t)n_columns * sizeof(float));
            fill_blocks(p.file.data, format, bytes, false);
            random_fill(p.x.data, 9 * (size_t)n_columns, 1.0f);
            test_problem(&p, 9);
            guarded_free(p.file), guarded_free(p.x);
        }
}

static void test_bad_arguments(void) {
    float x[32] = {0}, y[1];
    uint8_t block[18] = {0};
    EXPECT(ei_matmul("none", EI_Q4_0, 1, 32, block, 1, x, 0, y) == EI_BAD_ARGUMENT, "unknown ISA");
    EXPECT(ei_matmul("scalar", -1, 1, 32, block, 1, x, 0, y) == EI_BAD_ARGUMENT, "format below 0");
    EXPECT(ei_matmul("scalar", EI_N_FORMATS, 1, 32, block, 1, x, 0, y) == EI_BAD_ARGUMENT, "format past the last");
    EXPECT(ei_matmul("scalar", EI_Q4_0, 1, 31, block, 1, x, 0, y) == EI_BAD_ARGUMENT, "half a block");
}

int main(void) {
    for (int32_t format = 0; format < EI_N_FORMATS; format++)
        for (int32_t style = 0; style < 4; style++) test_format(format, style & 1, style & 2);
    test_few_columns();
    test_bad_arguments();
    if (n_failures) printf("%d failures\n", n_failures);
    return n_failures != 0;
}
