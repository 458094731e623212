/* edgeinfer/csrc/isa/avx512_encode.c: the encoders over the avx512 verbs. */
#define EI_ISA      avx512
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "avx512_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/encode_template.h"
