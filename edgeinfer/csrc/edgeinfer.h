/* edgeinfer/csrc/edgeinfer.h: the C interface that Python sees. Sizes are in elements unless a name ends in _bytes. */
#ifndef EDGEINFER_H
#define EDGEINFER_H

#include <stddef.h>
#include <stdint.h>

/* cdef begin */

/* What every fallible call returns. */
enum {
    EI_OK = 0,
    EI_CANCELLED = 1,
    EI_FORKED = 2,
    EI_NO_MEMORY = 3,
    EI_BAD_ARGUMENT = 4,
    EI_NON_FINITE = 5
};

/* -- threads -------------------------------------------------------------------------------- */

/* CPUs this process may use by affinity and cgroup quota, at least 1. */
int32_t ei_default_threads(void);

/* -- sampling ------------------------------------------------------------------------------- */

/* cdef end */

#endif
