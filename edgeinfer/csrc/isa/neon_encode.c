/* edgeinfer/csrc/isa/neon_encode.c: the encoders over the neon verbs. */
#define EI_ISA      neon
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "neon_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/encode_template.h"
