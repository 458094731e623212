/* edgeinfer/csrc/isa/avx2_peak.c: the peak loop of AVX2: maddubs and a 16-bit add, or one fma. */
#define EI_ISA      avx2
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "../edgeinfer.h"
#include "../kernels.h"

#include <immintrin.h>

typedef __m256i peak_ints;
typedef __m256 peak_floats;
#define PEAK_CHAINS      12
#define PEAK_INTS_IN     "x"
#define PEAK_FLOATS_IN   "x"
#define PEAK_DOT(sum, x) _mm256_add_epi16(sum, _mm256_maddubs_epi16(x, x))
#define PEAK_FMA(sum, x) _mm256_fmadd_ps(x, x, sum)
#define PEAK_DOT_MACS    32
#define PEAK_FMA_MACS    8
#include "../ops/peak_template.h"
