/* edgeinfer/csrc/isa/scalar_peak.c: the peak loop of plain C: one product at a time. */
#define EI_ISA      scalar
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "../edgeinfer.h"
#include "../kernels.h"

typedef int32_t peak_ints;
typedef float peak_floats;
#define PEAK_CHAINS      8
#define PEAK_DOT(sum, x) ((sum) + (x) * (x))
#define PEAK_FMA(sum, x) fmaf(x, x, sum)
#define PEAK_DOT_MACS    1
#define PEAK_FMA_MACS    1
#define PEAK_INTS_IN     "r"
#if defined(__aarch64__)
#define PEAK_FLOATS_IN "w"
#else
#define PEAK_FLOATS_IN "x"
#endif
#include "../ops/peak_template.h"
