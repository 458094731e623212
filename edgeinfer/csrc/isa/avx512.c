/* edgeinfer/csrc/isa/avx512.c: the row kernels over the avx512 verbs, and the table of all its kernels. */
#define EI_ISA      avx512
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "avx512_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/rows_template.h"

#include "../ops/recurrence_template.h"

#include "../ops/repack_template.h"

#include "../ops/table_template.h"
