/* edgeinfer/csrc/sample_loops.c: the two loops that read every logit, for the plain CPU and for AVX2.
   No operation is fused or reordered, so both give the same bits. */
#include <math.h>

#include "sample.h"

#define INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2")))
#else
#define WIDE
#endif

/* The compiler's own vectors: loops over floats with a choice in them are not vectorised else. */
typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef double f64x4 __attribute__((vector_size(32)));
typedef uint64_t u64x4 __attribute__((vector_size(32)));
typedef int64_t i64x4 __attribute__((vector_size(32)));

INLINE void take_max(f32x8 *most, const f32x8 *x) {
    i32x8 more = *x > *most;
    *most = (f32x8)(((i32x8)*x & more) | ((i32x8)*most & ~more));
}

INLINE bool scan(const float *row, int32_t n_blocks, float *block_max) {
    i32x8 nan = {0};
    bool finite = true;
    for (int32_t b = 0; b < n_blocks; b++, row += EI_SCAN_LEN) {
        f32x8 most[2], x;
        for (int i = 0; i < EI_SCAN_LEN / 8; i++) {
            memcpy(&x, row + 8 * i, sizeof x);
            nan |= x != x;
            if (i < 2)
                most[i] = x;
            else
                take_max(&most[i % 2], &x);
        }
        take_max(&most[0], &most[1]);
        float top = most[0][0];
        for (int j = 1; j < 8; j++) top = most[0][j] > top ? most[0][j] : top;
        block_max[b] = top;
        finite &= top < INFINITY;
    }
    for (int j = 0; j < 8; j++) finite &= nan[j] == 0;
    return finite;
}

bool ei_scan(const float *row, int32_t n_blocks, float *block_max) { return scan(row, n_blocks, block_max); }

WIDE bool ei_scan_wide(const float *row, int32_t n_blocks, float *block_max) { return scan(row, n_blocks, block_max); }

EI_DEFINE_EXP(exp_x4, f64x4, u64x4)

INLINE void mass(const float *row, int32_t n_groups, double top, double temperature, double *sum, double *dot) {
    for (int32_t g = 0; g < n_groups; g++, row += EI_SUM_LANES)
        for (int j = 0; j < EI_SUM_LANES; j += 4) {
            f32x4 x;
            f64x4 w, s, a, least = {EI_LEAST, EI_LEAST, EI_LEAST, EI_LEAST};
            memcpy(&x, row + j, sizeof x);
            f64x4 d = (__builtin_convertvector(x, f64x4) - top) / temperature;
            i64x4 kept = d > EI_LEAST;
            d = (f64x4)(((i64x4)d & kept) | ((i64x4)least & ~kept));
            w = d;
            exp_x4(&w);
            w = (f64x4)((i64x4)w & kept);
            memcpy(&s, sum + j, sizeof s);
            memcpy(&a, dot + j, sizeof a);
            s += w;
            a += w * d;
            memcpy(sum + j, &s, sizeof s);
            memcpy(dot + j, &a, sizeof a);
        }
}

void ei_mass_lanes(const float *row, int32_t n_groups, double top, double temperature, double *sum, double *dot) {
    mass(row, n_groups, top, temperature, sum, dot);
}

WIDE void ei_mass_wide(const float *row, int32_t n_groups, double top, double temperature, double *sum, double *dot) {
    mass(row, n_groups, top, temperature, sum, dot);
}

bool ei_has_wide_loops(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2");
#else
    return false;
#endif
}
