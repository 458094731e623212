/* edgeinfer/csrc/isa/i8mm.c: the row kernels over the i8mm verbs, and the table of all its kernels. */
#define EI_ISA      i8mm
#define EI_FN(name) EI_JOIN(ei_##name, EI_ISA)

#include "i8mm_verbs.h"

#include "../kernels.h"

#include "../ops/math_template.h"

#include "../ops/rows_template.h"

#include "../ops/recurrence_template.h"

#include "../ops/repack_template.h"

#include "../ops/table_template.h"
