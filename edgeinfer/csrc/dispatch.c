/* edgeinfer/csrc/dispatch.c: the kernel table of each level that this build has and this CPU runs. */
#include "cpu.h"
#include "edgeinfer.h"
#include "kernels.h"

#include <pthread.h>

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

static struct {
    bool runs[N_LEVELS];
    char levels[64], formats[16 * EI_N_FORMATS];
} facts;

static void append(char *out, const char *word) {
    if (*out) strcat(out, " ");
    strcat(out, word);
}

static void find_facts(void) {
    for (int i = 0; i < N_LEVELS; i++) {
        facts.runs[i] = levels[i].runs_here();
        if (facts.runs[i]) append(facts.levels, levels[i].kernels->isa);
    }
    for (int i = 0; i < EI_N_FORMATS; i++) append(facts.formats, ei_format_rows[i].name);
}

/* Threads may ask at once, and nobody may see half a list. The CPU is asked once for all: in a virtual machine each
 * question takes it 20 us. */
static void ensure_facts(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_facts);
}

const ei_kernels *ei_kernels_of(const char *isa) {
    ensure_facts();
    for (int i = 0; i < N_LEVELS; i++)
        if (!strcmp(isa, levels[i].kernels->isa) && facts.runs[i]) return levels[i].kernels;
    return NULL;
}

const char *ei_isa_levels(void) {
    ensure_facts();
    return facts.levels;
}

const char *ei_format_names(void) {
    ensure_facts();
    return facts.formats;
}
