/* edgeinfer/csrc/isa/neon.c: every kernel, instantiated over the neon verbs. */
#define EI_ISA      neon
#define EI_FN(name) EI_JOIN(name, EI_ISA)

#include "neon_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/attention_template.h"
#include "../ops/matmul_template.h"
#include "../ops/rows_template.h"

#include "../ops/table_template.h"
