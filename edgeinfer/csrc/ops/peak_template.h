/* edgeinfer/csrc/ops/peak_template.h: as many multiply-adds as the registers allow, no memory: the roof of an ISA.
 *
 * The including file defines the types peak_ints and peak_floats (a register or two), PEAK_CHAINS (sums that run side
 * by side, enough to hide the latency), PEAK_INTS_IN and PEAK_FLOATS_IN (the asm constraint of each type),
 * PEAK_DOT(sum, x) and PEAK_FMA(sum, x), and the products each adds, PEAK_DOT_MACS and PEAK_FMA_MACS. Between two
 * products an empty asm makes x unknown, so that the compiler can neither share nor hoist what it computes.
 */
#define PEAK_LOOP(type, IN, STEP)                                                                                      \
    {                                                                                                                  \
        type x = {0}, sums[PEAK_CHAINS] = {0};                                                                         \
        for (int64_t turn = 0; turn < n_turns; turn++) {                                                               \
            EI_UNROLL for (int i = 0; i < PEAK_CHAINS; i++) {                                                          \
                __asm__("" : "+" IN(x));                                                                               \
                sums[i] = STEP(sums[i], x);                                                                            \
            }                                                                                                          \
        }                                                                                                              \
        EI_UNROLL for (int i = 0; i < PEAK_CHAINS; i++) __asm__ volatile("" : : IN(sums[i]));                          \
    }

int64_t EI_FN(peak)(int32_t kind, int64_t n_turns) {
    if (kind == EI_PEAK_INT8) {
        PEAK_LOOP(peak_ints, PEAK_INTS_IN, PEAK_DOT)
        return n_turns * PEAK_CHAINS * PEAK_DOT_MACS;
    }
    PEAK_LOOP(peak_floats, PEAK_FLOATS_IN, PEAK_FMA)
    return n_turns * PEAK_CHAINS * PEAK_FMA_MACS;
}
