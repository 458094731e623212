/* edgeinfer/csrc/encode.c: encode rows of floats, 16 at a time, on some threads. */
#include "edgeinfer.h"
#include "kernels.h"
#include "repack.h"
#include "threads.h"

typedef struct {
    ei_encode_fn encode;
    ei_encode_rows rows; /* all of them */
    volatile int32_t refused;
} job;

static void encode_chunk(void *context, const void *op, int32_t chunk, int32_t thread) {
    (void)op, (void)thread;
    job *all = context;
    ei_encode_rows rows = all->rows;
    size_t first = (size_t)chunk * EI_LANES;
    rows.x += first * (size_t)rows.n_columns;
    rows.out += first * rows.row_bytes;
    rows.n_rows = min_i32(EI_LANES, rows.n_rows - chunk * EI_LANES);
    if (!all->encode(&rows)) all->refused = 1;
}

int32_t ei_encode(const char *isa, int32_t format, int32_t n_rows, int32_t n_columns, const float *x,
                  const float *importance, int32_t for_logits, int32_t n_threads, uint8_t *out) {
    const ei_kernels *k = ei_kernels_of(isa);
    if (!k || format < 0 || format >= EI_N_FORMATS || !k->encode[format] || n_rows < 0 || n_columns <= 0 ||
        n_columns % ei_format_rows[format].block_len || n_threads < 1)
        return EI_BAD_ARGUMENT;
    ei_pool *pool = ei_pool_new(n_threads);
    if (!pool) return EI_NO_MEMORY;
    ei_encode_rows rows = {x, importance, out, ei_row_bytes(format, n_columns), n_columns, n_rows, for_logits != 0};
    job all = {k->encode[format], rows, 0};
    ei_job chunks = {encode_chunk, NULL, n_rows / EI_LANES + (n_rows % EI_LANES != 0)};
    int32_t status = ei_pool_run(pool, &all, &chunks, 1, NULL);
    ei_pool_free(pool);
    return status == EI_OK && all.refused ? EI_NON_FINITE : status;
}
