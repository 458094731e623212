/* edgeinfer/csrc/ops/encode_panel_template.h: what every encoder starts and ends with: 16 rows of floats, a row in each
 * lane, and bytes of their blocks.
 *
 * The including file defines the verbs (isa/scalar_verbs.h) and ops/math_template.h. Nothing is ever added across
 * lanes: a row's bytes depend on that row alone, and every sum over k runs in the order of k.
 */

enum { PANEL_LEN = 256 };

/* [k][row]: the values, and the weight of a squared error at each. */
typedef struct {
    _Alignas(64) float x[PANEL_LEN][EI_LANES];
    _Alignas(64) float w[PANEL_LEN][EI_LANES];
} panel;

/* Where the blocks of 16 rows go: the first byte of row 0's block, the bytes from row to row, the rows there are. */
typedef struct {
    uint8_t *at;
    size_t row_bytes;
    int32_t n_rows;
} block_rows;

/* Load n columns (a multiple of 4) of the rows; rows past n_rows are zeros. Returns the largest bits of |x|. */
static int32_t load_panel(const ei_encode_rows *rows, int64_t column, int n, panel *to) {
    float padded[EI_LANES * PANEL_LEN];
    const float *from = rows->x + column;
    size_t stride = (size_t)rows->n_columns;
    if (rows->n_rows < EI_LANES) {
        size_t bytes = (size_t)n * sizeof *from;
        memset(padded, 0, EI_LANES * bytes);
        for (int32_t r = 0; r < rows->n_rows; r++) memcpy(padded + r * n, from + (size_t)r * stride, bytes);
        from = padded, stride = (size_t)n;
    }
    vi most = vi_zero(), magnitude = vi_set(0x7fffffff);
    for (int k = 0; k < n; k += 4) {
        vi four[4];
        vi_load_rows((const uint8_t *)(from + k), stride * sizeof *from, four);
        for (int i = 0; i < 4; i++) {
            most = vi_max(most, vi_and(four[i], magnitude));
            vi_store(to->x[k + i], four[i]);
        }
    }
    return vi_max_all(most);
}

EI_INLINE void put_word(const block_rows *to, size_t offset, vi word) {
    uint32_t lanes[EI_LANES];
    vi_store(lanes, word);
    for (int32_t r = 0; r < to->n_rows; r++) store_u32(to->at + (size_t)r * to->row_bytes + offset, lanes[r]);
}

EI_INLINE void put_u16(const block_rows *to, size_t offset, const uint16_t lanes[EI_LANES]) {
    for (int32_t r = 0; r < to->n_rows; r++) memcpy(to->at + (size_t)r * to->row_bytes + offset, lanes + r, 2);
}

EI_INLINE void put_u8(const block_rows *to, size_t offset, vi bytes) {
    uint32_t lanes[EI_LANES];
    vi_store(lanes, bytes);
    for (int32_t r = 0; r < to->n_rows; r++) to->at[(size_t)r * to->row_bytes + offset] = (uint8_t)lanes[r];
}

/* ((words[first] >> down) & mask) | the same of words[first + step] << by | ... of words[first + 2*step] << 2*by | ...
 */
EI_INLINE vi interleaved(const uint32_t words[][EI_LANES], int first, int step, int n, int down, int32_t mask, int by) {
    vi out = vi_zero();
    for (int i = 0; i < n; i++)
        out = vi_or(out, vi_shl(vi_and(vi_shr(vi_load(words[first + i * step]), down), vi_set(mask)), i * by));
    return out;
}

enum { LOW_NIBBLES = 0x0f0f0f0f, LOW_PAIRS = 0x03030303, LOW_BITS = 0x01010101 };

/* Four codes of 0 .. 255 of every row become the bytes of its dword. */
EI_INLINE void put_codes(uint32_t word[EI_LANES], const vi four[4]) {
    vi_store(word, vi_or(vi_or(four[0], vi_shl(four[1], 8)), vi_or(vi_shl(four[2], 16), vi_shl(four[3], 24))));
}

/* The nearest f16, as a float and as its bits. */
EI_INLINE vf round_f16(vf x, uint16_t bits[EI_LANES]) {
    vf most = vf_set(65504.0f);
    vf_to_f16(bits, vf_max(vf_min(x, most), vf_sub(vf_zero(), most)));
    return vf_from_f16(bits);
}

/* The nearest f16 of a scale; one too small for any f16 becomes the least, whose codes may still be near. */
EI_INLINE vf round_scale(vf scale, uint16_t bits[EI_LANES]) {
    vf magnitude = vf_abs(scale), raised = vf_signed_as(vf_max(magnitude, vf_set(0x1p-24f)), scale);
    return round_f16(vf_select_ge(vf_set(0.0f), magnitude, scale, raised), bits);
}

/* 1/x, and 0 for what is too small to have one. */
EI_INLINE vf inverse_of(vf x) {
    vf one = vf_set(1.0f), least = vf_set(0x1p-100f);
    return vf_select_ge(vf_abs(x), least, vf_div(one, vf_select_ge(vf_abs(x), least, x, one)), vf_zero());
}

/* The weights of squared errors: with importance that of the column, else 1 + emphasis * x^2 / (mean of x^2 over the n
 * values of the row). Formats that clip shrink the largest values, often where outputs come from: an emphasis of a
 * tenth takes a third of that away for at most 0.5 % of RMS error; more costs other outputs as much as it saves. What
 * logits are made of has rows that are long in one direction which all of them share: in Q6_K, its usual format, it
 * gets an emphasis of 1. Else, where nothing is clipped or importance is known, any loses (benchmarks/RESULTS.md,
 * Encoders). */
EI_INLINE void weigh(panel *p, int n, const float *importance, float emphasis) {
    vf by = vf_zero();
    if (!importance && emphasis > 0.0f) {
        vf squares = vf_zero();
        for (int k = 0; k < n; k++) squares = vf_fma(vf_load(p->x[k]), vf_load(p->x[k]), squares);
        by = vf_mul(inverse_of(squares), vf_set(emphasis * (float)n));
    }
    for (int k = 0; k < n; k++) {
        vf x = vf_load(p->x[k]);
        vf_store(p->w[k], importance ? vf_set(importance[k]) : vf_fma(vf_mul(x, by), x, vf_set(1.0f)));
    }
}
