/* edgeinfer/csrc/fp_state.h: put the FPU of the calling thread into the state the contract needs. */
#ifndef EI_FP_STATE_H
#define EI_FP_STATE_H

#include <stdint.h>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

/* Round to nearest, subnormals kept, no traps. Libraries built with -ffast-math turn subnormals off
   in every thread that loads them, which would make results depend on what else was imported.
   Returns the former state for ei_fp_leave. */
static inline uint64_t ei_fp_enter(void) {
#if defined(__x86_64__) || defined(__i386__)
    uint64_t saved = _mm_getcsr();
    _mm_setcsr(0x1f80u); /* the power-on value: all exceptions masked, FTZ and DAZ clear */
    return saved;
#elif defined(__aarch64__)
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return saved;
#else
    return 0;
#endif
}

static inline void ei_fp_leave(uint64_t saved) {
#if defined(__x86_64__) || defined(__i386__)
    _mm_setcsr((unsigned)saved);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(saved));
#else
    (void)saved;
#endif
}

#endif
