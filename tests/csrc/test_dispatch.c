/* tests/csrc/test_dispatch.c: the levels of this build and CPU are in order, exist, and run here without a fault.
 *
 * EI_EXPECT_BEST names the level that this CPU must get; tools/run_c_tests.py sets it for the CPUs qemu imitates.
 */
#include "edgeinfer.h"
#include "inputs.h"

enum { ROWS = 17, COLUMNS = 256, TOKENS = 5 };

/* Calls kernels of every file of a level. */
static void run_level(const char *isa, float *y) {
    static float x[TOKENS * COLUMNS];
    static uint8_t weights[ROWS * COLUMNS * 4];
    random_state = 1;
    random_fill(x, TOKENS * COLUMNS, 1.0f);
    /* bytes of which any two are a finite f16 */
    for (size_t i = 0; i < sizeof weights; i++) weights[i] = (uint8_t)(16 + random_below(32));
    const ei_kernels *k = ei_kernels_of(isa);
    k->rms_norm(x, NULL, x, TOKENS * COLUMNS, 1e-6f);
    for (int32_t fn = 0; fn < EI_N_FUNCTIONS; fn++) k->act(fn, x, x, COLUMNS);
    for (int32_t format = 0; format < EI_N_FORMATS; format++)
        for (int32_t fine = 0; fine < 2; fine++, y += TOKENS * ROWS) {
            int32_t status = ei_matmul(isa, format, ROWS, COLUMNS, weights, TOKENS, x, fine, y);
            EXPECT(status == EI_OK, "%s %s: status %d", isa, ei_format_rows[format].name, status);
        }
}

int main(void) {
    static float want[EI_N_FORMATS * 2 * TOKENS * ROWS], y[EI_N_FORMATS * 2 * TOKENS * ROWS];
    const char *expected = getenv("EI_EXPECT_BEST"), *best = NULL;
    char levels[128];
    snprintf(levels, sizeof levels, "%s", ei_isa_levels());
    EXPECT(!strncmp(levels, "scalar", 6), "found %s", levels);
    run_level("scalar", want);
    for (const char *level = strtok(levels, " "); level; level = strtok(NULL, " ")) {
        best = level;
        run_level(level, y);
        EXPECT(!memcmp(want, y, sizeof y), "%s differs from scalar", level);
    }
    EXPECT(!expected || !strcmp(best, expected), "found %s (need %s)", best, expected);
    EXPECT(!ei_kernels_of("mmx") && !ei_kernels_of(""), "a level that does not exist");
    return n_failures != 0;
}
