/* edgeinfer/csrc/isa/avx2_encode.c: the encoders over the avx2 verbs. */
#define EI_ISA      avx2
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "avx2_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/encode_template.h"
