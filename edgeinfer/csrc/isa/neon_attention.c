/* edgeinfer/csrc/isa/neon_attention.c: the attention kernels over the neon verbs. */
#define EI_ISA      neon
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "neon_verbs.h"
#include "neon_kv_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/attention_template.h"
