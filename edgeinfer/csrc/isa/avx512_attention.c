/* edgeinfer/csrc/isa/avx512_attention.c: the attention kernels over the avx512 verbs. */
#define EI_ISA      avx512
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "avx512_verbs.h"
#include "avx512_kv_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/attention_template.h"
