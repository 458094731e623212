/* edgeinfer/csrc/memory.h: large zeroed allocations on huge pages where the system has them. */
#ifndef EI_MEMORY_H
#define EI_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed, 2 MB aligned, not yet touched: pages cost memory when first written. huge: ask for pages of 2 MB, for what
 * will be touched all over. NULL when refused. */
void *ei_big_alloc(size_t n_bytes, bool huge);
void ei_big_free(void *p, size_t n_bytes);

/* Tell the system that the whole pages inside [p, p + n) of a mapped file are not needed for now. */
void ei_release_mapped(const void *p, size_t n_bytes);

/* Give back to the system what free() keeps for later, where the C library can. Takes milliseconds. */
void ei_return_freed(void);

#endif
