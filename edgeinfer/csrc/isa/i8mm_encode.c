/* edgeinfer/csrc/isa/i8mm_encode.c: the encoders over the i8mm verbs. */
#define EI_ISA      i8mm
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "i8mm_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/encode_template.h"
