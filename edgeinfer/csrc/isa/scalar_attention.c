/* edgeinfer/csrc/isa/scalar_attention.c: the attention kernels over the scalar verbs. */
#define EI_ISA      scalar
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "scalar_verbs.h"
#include "scalar_kv_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/attention_template.h"
