/* edgeinfer/csrc/edgeinfer.h: the C interface that Python sees. Sizes are in elements unless a name ends in _bytes. */
#ifndef EDGEINFER_H
#define EDGEINFER_H

#include <stddef.h>
#include <stdint.h>

/* cdef begin */

/* -- sampling ------------------------------------------------------------------------------- */

/* cdef end */

#endif
