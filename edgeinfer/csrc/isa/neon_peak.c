/* edgeinfer/csrc/isa/neon_peak.c: the peak loop of NEON: sdot, or one fma. */
#define EI_ISA      neon
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "../edgeinfer.h"
#include "../kernels.h"

#include <arm_neon.h>

typedef int32x4_t peak_ints;
typedef float32x4_t peak_floats;
#define PEAK_CHAINS      16
#define PEAK_INTS_IN     "w"
#define PEAK_FLOATS_IN   "w"
#define PEAK_DOT(sum, x) vdotq_s32(sum, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(x))
#define PEAK_FMA(sum, x) vfmaq_f32(sum, x, x)
#define PEAK_DOT_MACS    16
#define PEAK_FMA_MACS    4
#include "../ops/peak_template.h"
