/* edgeinfer/csrc/isa/avxvnni_encode.c: the encoders over the avxvnni verbs. */
#define EI_ISA      avxvnni
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "avxvnni_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/encode_template.h"
