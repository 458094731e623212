/* edgeinfer/csrc/isa/scalar.c: every kernel, instantiated over the scalar verbs. */
#define EI_ISA      scalar
#define EI_FN(name) EI_JOIN(name, EI_ISA)

#include "scalar_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/attention_template.h"
#include "../ops/matmul_template.h"
#include "../ops/rows_template.h"

#include "../ops/table_template.h"
