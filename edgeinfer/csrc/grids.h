/* edgeinfer/csrc/grids.h: the codebooks of IQ1, IQ2 and IQ3: one byte a coordinate, the first lowest. */
#ifndef EI_GRIDS_H
#define EI_GRIDS_H

#include <stdint.h>

/* What stands for 0 in the codebook of IQ1, less 1 for the eighth that is then added or not: no byte carries. */
enum { EI_IQ1_ZERO = 128 };

typedef struct {
    uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024]; /* magnitudes */
    uint32_t iq3_xxs[256], iq3_s[512];
    uint64_t iq1[2048];                   /* EI_IQ1_ZERO + 8*coordinate - 1 */
    uint64_t signs[256], signs_of_7[128]; /* 0xff for each negative element */
} ei_grid_tables;

extern ei_grid_tables ei_grids;

#endif
