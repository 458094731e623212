/* edgeinfer/csrc/isa/scalar_encode.c: the encoders over the scalar verbs. */
#define EI_ISA      scalar
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "scalar_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/encode_template.h"
