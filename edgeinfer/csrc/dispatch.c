/* edgeinfer/csrc/dispatch.c: the kernel table of each level that this build has and this CPU runs. */
#include "cpu.h"
#include "edgeinfer.h"
#include "kernels.h"

extern const ei_kernels ei_kernels_scalar;
#ifdef EI_HAVE_AVX2
extern const ei_kernels ei_kernels_avx2;
#endif
#ifdef EI_HAVE_AVXVNNI
extern const ei_kernels ei_kernels_avxvnni;
#endif
#ifdef EI_HAVE_AVX512
extern const ei_kernels ei_kernels_avx512;
#endif
#ifdef EI_HAVE_NEON
extern const ei_kernels ei_kernels_neon;
#endif
#ifdef EI_HAVE_I8MM
extern const ei_kernels ei_kernels_i8mm;
#endif

static bool always(void) { return true; }

/* Worst to best. */
static const struct {
    const ei_kernels *kernels;
    bool (*runs_here)(void);
} levels[] = {
    {&ei_kernels_scalar, always},
#ifdef EI_HAVE_NEON
    {&ei_kernels_neon, ei_cpu_has_neon},
#endif
#ifdef EI_HAVE_I8MM
    {&ei_kernels_i8mm, ei_cpu_has_i8mm},
#endif
#ifdef EI_HAVE_AVX2
    {&ei_kernels_avx2, ei_cpu_has_avx2},
#endif
#ifdef EI_HAVE_AVXVNNI
    {&ei_kernels_avxvnni, ei_cpu_has_avxvnni},
#endif
#ifdef EI_HAVE_AVX512
    {&ei_kernels_avx512, ei_cpu_has_avx512},
#endif
};
enum { N_LEVELS = sizeof levels / sizeof *levels };

/* Whether a level runs here. Asking the CPU once is enough: in a virtual machine each question takes it 20 us. */
static bool runs(int level) {
    static _Atomic int8_t known[N_LEVELS]; /* 1 no, 2 yes */
    if (!known[level]) known[level] = levels[level].runs_here() ? 2 : 1;
    return known[level] == 2;
}

const ei_kernels *ei_kernels_of(const char *isa) {
    for (int i = 0; i < N_LEVELS; i++)
        if (!strcmp(isa, levels[i].kernels->isa) && runs(i)) return levels[i].kernels;
    return NULL;
}

static void append(char *out, const char *word) {
    if (*out) strcat(out, " ");
    strcat(out, word);
}

/* Both lists are rebuilt to the same text by whoever asks first; the caller holds Python's lock. */
const char *ei_isa_levels(void) {
    static char names[64];
    if (!*names)
        for (int i = 0; i < N_LEVELS; i++)
            if (runs(i)) append(names, levels[i].kernels->isa);
    return names;
}

const char *ei_format_names(void) {
    static char names[16 * EI_N_FORMATS];
    if (!*names)
        for (int i = 0; i < EI_N_FORMATS; i++) append(names, ei_format_rows[i].name);
    return names;
}
