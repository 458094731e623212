/* tests/csrc/test_repack.c: every ISA lays rows out as repack.c does, byte for byte, and keeps to its buffers. */
#include "repack.h"
#include "inputs.h"

static void compare(const ei_kernels *k, int32_t format, int32_t n_rows, int32_t n_blocks) {
    int64_t n_columns = (int64_t)n_blocks * ei_format_rows[format].block_len;
    size_t row_bytes = ei_row_bytes(format, n_columns), group_bytes = EI_LANES * row_bytes;
    guarded file = guarded_new((size_t)n_rows * row_bytes), got = guarded_new(group_bytes);
    uint8_t *rows = file.data, *want = malloc(group_bytes);
    for (size_t i = 0; i < (size_t)n_rows * row_bytes; i++) rows[i] = (uint8_t)random_u32();
    memset(got.data, 0xa5, group_bytes);
    ei_repack_group(NULL, format, rows, n_rows, n_columns, want);
    ei_repack_group(k, format, rows, n_rows, n_columns, got.data);
    EXPECT(!memcmp(got.data, want, group_bytes), "%s %s: %d rows of %d blocks differ", k->isa,
           ei_format_rows[format].name, n_rows, n_blocks);
    free(want);
    guarded_free(got);
    guarded_free(file);
}

/* Bits may only be moved: each set bit of the file is one set bit of the group. */
static void count_bits(int32_t format) {
    uint8_t rows[16 * 256], group[16 * 256];
    size_t n_bytes = EI_LANES * (size_t)ei_format_rows[format].block_bytes;
    for (size_t i = 0; i < 8 * n_bytes; i++) {
        int32_t set = 0;
        memset(rows, 0, n_bytes);
        rows[i / 8] = (uint8_t)(1 << i % 8);
        ei_repack_group(NULL, format, rows, EI_LANES, ei_format_rows[format].block_len, group);
        for (size_t b = 0; b < n_bytes; b++) set += __builtin_popcount(group[b]);
        EXPECT(set == 1, "%s: bit %d of the file became %d bits", ei_format_rows[format].name, (int)i, set);
    }
}

int main(void) {
    static const int32_t n_rows[] = {16, 1, 15}, n_blocks[] = {1, 3, 8, 9};
    for (int32_t format = 0; format < EI_N_FORMATS; format++) {
        count_bits(format);
        for (int i = 0; i < N_ISA_NAMES; i++) {
            const ei_kernels *k = kernels_to_test(i);
            for (int r = 0; k && r < 3; r++)
                for (int b = 0; b < 4; b++) compare(k, format, n_rows[r], n_blocks[b]);
        }
    }
    return n_failures != 0;
}
