/* edgeinfer/csrc/codebook.h: a super-block of codebook points (or trits) -> integers for the byte dot products. */
#ifndef EI_CODEBOOK_H
#define EI_CODEBOOK_H

#include "base.h"
#include "formats.h"

/* One super-block of up to 16 rows. The rows that were not given keep what they had. */
typedef struct {
    int8_t codes[64][64];   /* k-groups: k 4g .. 4g+3 of row r at [g][4r] */
    uint8_t scales[16][16]; /* [run of 16][row]: the law's c */
    float w[16];
} ei_codes;

enum { EI_CODEBOOK_LARGEST = 62 }; /* of |code| in any of the formats */

/* rows: n_rows file blocks, one after another */
#define ROW(NAME, name) void ei_unpack_##name(const block_##name *rows, int32_t n_rows, ei_codes *out);
EI_CODEBOOK_FORMATS(ROW)
#undef ROW

#endif
