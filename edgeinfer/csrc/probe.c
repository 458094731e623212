/* edgeinfer/csrc/probe.c: single kernels, for tests and benchmarks. */
#include "edgeinfer.h"
#include "kernels.h"
#include "repack.h"

#include <stdlib.h>

static void matmul_rows(const ei_kernels *k, int32_t format, const uint8_t *x, const ei_acts *acts, int32_t first,
                        int32_t n_rows, float *y) {
    float out[EI_WIDE * EI_LANES];
    const char *fetch[EI_STREAMS];
    ei_fetch_group(x, EI_LANES * ei_row_bytes(format, acts->width), fetch);
    for (int32_t t = 0; t < acts->n_tokens; t += EI_WIDE) {
        int32_t n = min_i32(EI_WIDE, acts->n_tokens - t);
        k->matmul[format][acts->fine](x, fetch, acts, t, n, out);
        for (int32_t i = 0; i < n; i++)
            memcpy(y + (size_t)(t + i) * (size_t)n_rows + first, out + EI_LANES * i,
                   (size_t)min_i32(EI_LANES, n_rows - first) * sizeof *y);
    }
}

int32_t ei_matmul(const char *isa, int32_t format, int32_t n_rows, int32_t n_columns, const uint8_t *file,
                  int32_t n_tokens, const float *x, int32_t fine, float *y) {
    const ei_kernels *k = ei_kernels_of(isa);
    if (!k || format < 0 || format >= EI_N_FORMATS || n_columns % ei_format_rows[format].block_len)
        return EI_BAD_ARGUMENT;
    bool integers = ei_format_rows[format].block_len > 1;
    size_t n = (size_t)n_tokens * (size_t)n_columns, group_bytes = EI_LANES * ei_row_bytes(format, n_columns);
    uint8_t *memory = aligned_alloc(64, ((9 * n + group_bytes) | 63) + 1);
    if (!memory) return EI_NO_MEMORY;
    ei_acts acts = {.n_tokens = n_tokens, .width = n_columns};
    if (integers) {
        acts.d = (float *)(memory + group_bytes), acts.sums = acts.d + n / EI_RUN_LEN;
        acts.ds = acts.sums + n / EI_RUN_LEN, acts.fine = fine;
        int8_t *codes = (int8_t *)(acts.ds + n / EI_BLOCK);
        if (!(fine && k->fine_words)) acts.q = codes;
        if (fine && !k->fine_words) acts.low = codes + n;
        if (k->fine_words && (fine || ei_has_signed_codes(format)))
            acts.words = (int16_t *)(void *)(fine ? codes : codes + n);
    } else {
        acts.x = (float *)(memory + group_bytes);
    }
    for (int32_t t = 0; t < n_tokens; t++) k->quantize(x + (size_t)t * (size_t)n_columns, t, &acts);
    for (int32_t r = 0; r < n_rows; r += EI_LANES) {
        const uint8_t *rows = file + (size_t)r * ei_row_bytes(format, n_columns);
        ei_repack_group(k, format, rows, min_i32(EI_LANES, n_rows - r), n_columns, memory);
        matmul_rows(k, format, memory, &acts, r, n_rows, y);
    }
    free(memory);
    return EI_OK;
}
