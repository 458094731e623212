/* edgeinfer/csrc/isa/avx512.c: every kernel, instantiated over the avx512 verbs. */
#define EI_ISA      avx512
#define EI_FN(name) EI_JOIN(name, EI_ISA)

#include "avx512_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/attention_template.h"
#include "../ops/matmul_template.h"
#include "../ops/rows_template.h"

#include "../ops/table_template.h"
