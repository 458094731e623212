/* edgeinfer/csrc/isa/i8mm_peak.c: the peak loop of NEON with i8mm: smmla, or one fma. */
#define EI_ISA      i8mm
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "../edgeinfer.h"
#include "../kernels.h"

#include <arm_neon.h>

typedef int32x4_t peak_ints;
typedef float32x4_t peak_floats;
#define PEAK_CHAINS      16
#define PEAK_INTS_IN     "w"
#define PEAK_FLOATS_IN   "w"
#define PEAK_DOT(sum, x) vmmlaq_s32(sum, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(x))
#define PEAK_FMA(sum, x) vfmaq_f32(sum, x, x)
#define PEAK_DOT_MACS    32
#define PEAK_FMA_MACS    4
#include "../ops/peak_template.h"
