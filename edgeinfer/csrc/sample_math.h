/* edgeinfer/csrc/sample_math.h: exp and log as fixed sequences of double operations.
   A libm may round either differently on another machine, and a seed would then mean another text.
   edgeinfer/engine/sampling_numpy.py repeats these sequences, operation by operation. */
#ifndef EI_SAMPLE_MATH_H
#define EI_SAMPLE_MATH_H

#include <stdint.h>
#include <string.h>

#define EI_LN2    0x1.62e42fefa39efp-1
#define EI_LN2_HI 0x1.62e42feep-1       /* 33 bits, so that n * EI_LN2_HI is exact for |n| < 2^20 */
#define EI_LN2_LO 0x1.a39ef35793c76p-33 /* ln 2 - EI_LN2_HI */
#define EI_LOG2_E 0x1.71547652b82fep+0
#define EI_ROUND  0x1.8p52 /* adding it leaves an integer in the last bits of the sum */
#define EI_LEAST  (-700.0) /* exp of less counts as 0, so that nothing becomes subnormal */

static inline uint64_t f64_bits(double x) {
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}

static inline double f64_from_bits(uint64_t u) {
    double x;
    memcpy(&x, &u, 8);
    return x;
}

/* Define name(T *x): replace x in [EI_LEAST, 0] by e^x, T being double or a vector of them and U as
   many uint64_t. Taylor to r^11 on |r| <= ln2/2: relative error < 1e-14. */
#define EI_DEFINE_EXP(name, T, U)                                                                                      \
    static inline __attribute__((always_inline)) void name(T *x) {                                                     \
        T t = *x * EI_LOG2_E + EI_ROUND, n = t - EI_ROUND;                                                             \
        T r = (*x - n * EI_LN2_HI) - n * EI_LN2_LO;                                                                    \
        T p = r * (1.0 / 39916800) + 1.0 / 3628800;                                                                    \
        p = p * r + 1.0 / 362880;                                                                                      \
        p = p * r + 1.0 / 40320;                                                                                       \
        p = p * r + 1.0 / 5040;                                                                                        \
        p = p * r + 1.0 / 720;                                                                                         \
        p = p * r + 1.0 / 120;                                                                                         \
        p = p * r + 1.0 / 24;                                                                                          \
        p = p * r + 1.0 / 6;                                                                                           \
        p = p * r + 0.5;                                                                                               \
        p = p * r + 1.0;                                                                                               \
        p = p * r + 1.0;                                                                                               \
        U power; /* of two: n stands in the last bits of t */                                                          \
        memcpy(&power, &t, sizeof power);                                                                              \
        power = (power + 1023) << 52;                                                                                  \
        memcpy(&t, &power, sizeof power);                                                                              \
        *x = p * t;                                                                                                    \
    }

EI_DEFINE_EXP(exp_in_place, double, uint64_t)

/* e^x for x <= 0, where what is below EI_LEAST counts as nothing. */
static inline double exp_neg(double x) {
    if (!(x > EI_LEAST)) return 0.0;
    exp_in_place(&x);
    return x;
}

/* ln x of a normal positive x: x = 2^e m with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m-1)/(m+1)). */
static inline double log_of(double x) {
    uint64_t bits = f64_bits(x);
    int32_t e = (int32_t)(bits >> 52) - 1023;
    double m = f64_from_bits((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m = m * 0.5;
        e = e + 1;
    }
    double f = (m - 1.0) / (m + 1.0), g = f * f, p = 1.0 / 21;
    for (int k = 19; k >= 1; k -= 2) p = p * g + 1.0 / k;
    return (double)e * EI_LN2_HI + ((double)e * EI_LN2_LO + 2.0 * f * p);
}

#endif
