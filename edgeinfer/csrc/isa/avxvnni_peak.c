/* edgeinfer/csrc/isa/avxvnni_peak.c: the peak loop of AVX-VNNI: dpbusd, or one fma. */
#define EI_ISA      avxvnni
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "../edgeinfer.h"
#include "../kernels.h"

#ifdef EI_SIMDE
/* an emulated instruction set has no roof */
int64_t EI_FN(peak)(int32_t kind, int64_t n_turns) {
    (void)kind, (void)n_turns;
    return 0;
}
#else
#include <immintrin.h>

typedef __m256i peak_ints;
typedef __m256 peak_floats;
#define PEAK_CHAINS      12
#define PEAK_INTS_IN     "x"
#define PEAK_FLOATS_IN   "x"
#define PEAK_DOT(sum, x) _mm256_dpbusd_avx_epi32(sum, x, x)
#define PEAK_FMA(sum, x) _mm256_fmadd_ps(x, x, sum)
#define PEAK_DOT_MACS    32
#define PEAK_FMA_MACS    8
#include "../ops/peak_template.h"
#endif
