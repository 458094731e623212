/* edgeinfer/csrc/repack.h: file rows -> X groups, and file rows -> floats. */
#ifndef EI_REPACK_H
#define EI_REPACK_H

#include "kernels.h"

int32_t ei_n_groups(int32_t n_rows);
size_t ei_row_bytes(int32_t format, int64_t n_columns);

/* n_rows (1 .. 16) consecutive file rows of n_columns -> 16 * ei_row_bytes bytes; rows past n_rows become zeros.
 * kernels: whose vectors to use, or NULL for none; the bytes are the same. */
void ei_repack_group(const ei_kernels *kernels, int32_t format, const uint8_t *rows, int32_t n_rows, int64_t n_columns,
                     uint8_t *group);

/* Groups first .. last - 1, to out. Groups count through matrices of n_rows that stand one after another in the file;
 * the last of each may be short. */
void ei_repack_groups(const ei_kernels *kernels, int32_t format, int32_t n_rows, int32_t n_columns, const uint8_t *file,
                      int32_t first, int32_t last, uint8_t *out);
/* Bytes of the file before such a group. */
size_t ei_file_offset(int32_t n_rows, int32_t n_columns, int32_t format, int32_t group);

/* One file row as floats, bit for bit what edgeinfer/quant/decode.py gives. */
void ei_decode_row(int32_t format, const void *row, int64_t n_columns, float *out);

#endif
