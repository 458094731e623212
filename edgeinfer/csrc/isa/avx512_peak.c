/* edgeinfer/csrc/isa/avx512_peak.c: the peak loop of AVX-512 VNNI: dpbusd, or one fma. */
#define EI_ISA      avx512
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

typedef __m512i peak_ints;
typedef __m512 peak_floats;
#define PEAK_CHAINS      16
#define PEAK_INTS_IN     "v"
#define PEAK_FLOATS_IN   "v"
#define PEAK_DOT(sum, x) _mm512_dpbusd_epi32(sum, x, x)
#define PEAK_FMA(sum, x) _mm512_fmadd_ps(x, x, sum)
#define PEAK_DOT_MACS    64
#define PEAK_FMA_MACS    16
#include "../ops/peak_template.h"
#endif
