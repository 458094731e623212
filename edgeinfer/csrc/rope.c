/* edgeinfer/csrc/rope.c: cosines and sines of a token's rotary angles, the same bits on every machine. */
#include "kernels.h"

/* Plain IEEE double steps only, each rounded once (no libm, no contraction): so the result depends on nothing but the
 * angle. pi/2 in three parts; the first two have 33 bits, so a multiple below 2^20 of either is exact. */
#define HALF_PI_HIGH 0x1.921fb544p+0
#define HALF_PI_MID  0x1.0b4611a6p-34
#define HALF_PI_LOW  0x1.3198a2e037073p-69
#define TWO_OVER_PI  0x1.45f306dc9c883p-1
#define ROUNDING     0x1.8p+52 /* added and taken away: nearest integer, which the low bits of the sum hold */

/* Taylor series; |r| <= pi/4 leaves an error below 3e-14. */
static double sin_of_reduced(double r) {
    double w = r * r;
    double p = 1.0 / 6227020800.0;
    p = p * w - 1.0 / 39916800.0;
    p = p * w + 1.0 / 362880.0;
    p = p * w - 1.0 / 5040.0;
    p = p * w + 1.0 / 120.0;
    p = p * w - 1.0 / 6.0;
    return r + r * (w * p);
}

static double cos_of_reduced(double r) {
    double w = r * r;
    double p = 1.0 / 479001600.0;
    p = p * w - 1.0 / 3628800.0;
    p = p * w + 1.0 / 40320.0;
    p = p * w - 1.0 / 720.0;
    p = p * w + 1.0 / 24.0;
    p = p * w - 0.5;
    return 1.0 + w * p;
}

void ei_rope_row(int32_t position, const float *inv_freq, int32_t n, float mscale, float *cosines, float *sines) {
    for (int32_t i = 0; i < n; i++) {
        double angle = (double)position * (double)inv_freq[i]; /* exact: 31 + 24 bits at most, 53 below 2^29 */
        double sum = angle * TWO_OVER_PI + ROUNDING, k = sum - ROUNDING;
        double r = ((angle - k * HALF_PI_HIGH) - k * HALF_PI_MID) - k * HALF_PI_LOW;
        double s = sin_of_reduced(r), c = cos_of_reduced(r);
        uint64_t quarter;
        memcpy(&quarter, &sum, 8);
        double turned_s = quarter & 1 ? c : s, turned_c = quarter & 1 ? s : c;
        sines[i] = (float)((quarter & 2 ? -turned_s : turned_s) * (double)mscale);
        cosines[i] = (float)(((quarter + 1) & 2 ? -turned_c : turned_c) * (double)mscale);
    }
}
