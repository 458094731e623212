/* tests/csrc/test_encode.c: every ISA encodes as the scalar one does, byte for byte, keeps to its buffers, and writes
 * nothing that does not come from the values.
 */
#include "inputs.h"
#include "repack.h"

static void fill(float *x, size_t n, int kind) {
    random_fill(x, n, kind == 1 ? 1e-6f : 1.0f);
    for (size_t i = 0; kind == 2 && i < n; i++) x[i] = i % 97 ? 0.0f : 65504.0f;
    for (size_t i = 0; kind == 3 && i < n; i++) x[i] = rintf(x[i] * 9.0f) * 0.125f;
}

static void encode(const ei_kernels *k, int32_t format, const float *x, const float *importance, bool for_logits,
                   int32_t n_rows, int32_t n_columns, uint8_t before, uint8_t *out) {
    ei_encode_rows rows = {x, importance, out, ei_row_bytes(format, n_columns), n_columns, n_rows, for_logits};
    memset(out, before, (size_t)n_rows * rows.row_bytes);
    EXPECT(k->encode[format](&rows), "%s %s: finite values were refused", k->isa, ei_format_rows[format].name);
}

static void compare(const ei_kernels *k, int32_t format, int kind, int32_t n_rows, bool weighted) {
    int32_t n_columns = 2 * 256;
    size_t n = (size_t)n_rows * (size_t)n_columns, n_bytes = (size_t)n_rows * ei_row_bytes(format, n_columns);
    guarded x = guarded_new(n * 4), importance = guarded_new((size_t)n_columns * 4), got = guarded_new(n_bytes);
    uint8_t *want = malloc(n_bytes);
    fill(x.data, n, kind);
    random_fill(importance.data, (size_t)n_columns, 1.0f);
    for (int32_t c = 0; c < n_columns; c++) ((float *)importance.data)[c] += 1.001f;
    const float *weights = weighted ? importance.data : NULL;
    for (int i = 0; i < 2; i++) {
        encode(ei_kernels_of("scalar"), format, x.data, weights, i, n_rows, n_columns, 0x5a, want);
        encode(k, format, x.data, weights, i, n_rows, n_columns, 0xa5, got.data);
        EXPECT(!memcmp(got.data, want, n_bytes), "%s %s: %d rows of kind %d differ", k->isa,
               ei_format_rows[format].name, n_rows, kind);
    }
    free(want);
    guarded_free(got);
    guarded_free(importance);
    guarded_free(x);
}

static void refuse(const ei_kernels *k, int32_t format) {
    float x[3 * 256];
    uint8_t out[3 * 256 * 4];
    ei_encode_rows rows = {x, NULL, out, ei_row_bytes(format, 256), 256, 3, false};
    static const float not_finite[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        random_fill(x, 3 * 256, 1.0f);
        x[random_below(3 * 256)] = not_finite[i];
        EXPECT(!k->encode[format](&rows), "%s %s: %f was taken", k->isa, ei_format_rows[format].name,
               (double)not_finite[i]);
    }
}

int main(void) {
    static const int32_t n_rows[] = {16, 1, 15};
    for (int i = 0; i < N_ISA_NAMES; i++) {
        const ei_kernels *k = kernels_to_test(i);
        for (int32_t format = 0; k && format < EI_N_FORMATS; format++) {
            if (!k->encode[format]) continue;
            refuse(k, format);
            for (int kind = 0; kind < 4; kind++) compare(k, format, kind, n_rows[kind % 3], kind % 2);
        }
    }
    return n_failures != 0;
}
