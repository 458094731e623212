/* edgeinfer/csrc/isa/i8mm_verbs.h: the neon verbs, for CPUs that have the matrix product as well (ARMv8.6 i8mm).
 *
 * usdot has no use: the codes that are unsigned are below 128, so sdot takes them as they are.
 */
#include "neon_verbs.h"
