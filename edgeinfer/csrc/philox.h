/* edgeinfer/csrc/philox.h: Philox4x32-10, random numbers as a pure function of a key and a counter.
   Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). */
#ifndef EI_PHILOX_H
#define EI_PHILOX_H

#include <stdint.h>

static inline void philox_round(uint32_t c[4], uint32_t k0, uint32_t k1) {
    uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c[3] = (uint32_t)a;
}

/* Replace the counter by its four random words. */
static inline void philox(uint32_t c[4], uint64_t key) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < 10; i++) {
        philox_round(c, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* A double in [0, 1) with 53 random bits. */
static inline double philox_uniform(uint64_t key, uint64_t position, uint32_t draw, uint32_t choice) {
    uint32_t c[4] = {(uint32_t)position, (uint32_t)(position >> 32), draw, choice};
    philox(c, key);
    return (double)((uint64_t)c[0] << 21 | c[1] >> 11) * 0x1p-53;
}

#endif
