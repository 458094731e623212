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

/* e^x for x in [EI_LEAST, 0]; 0 below. Taylor to r^11 on |r| <= ln2/2: relative error < 1e-14. */
static inline double exp_neg(double x) {
    double kept = x > EI_LEAST ? x : EI_LEAST;
    double t = kept * EI_LOG2_E + EI_ROUND;
    double n = t - EI_ROUND;
    double r = (kept - n * EI_LN2_HI) - n * EI_LN2_LO;
    double p = 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    double e = p * f64_from_bits((f64_bits(t) + 1023) << 52);
    return x > EI_LEAST ? e : 0.0;
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
