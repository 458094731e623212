/* edgeinfer/csrc/ops/encode_blocks_template.h: encode the formats without sub-blocks: F32 and the 16-bit floats, and
 * the blocks of 32 with one scale (and minimum) each.
 *
 * The including file defines the verbs, ops/math_template.h, encode_panel_template.h and encode_search_template.h.
 */

/* -- floats --------------------------------------------------------------------------------- */

enum { F16_LIMIT = 0x477ff000, BF16_LIMIT = 0x7f7f8000, F32_LIMIT = 0x7f800000, SCALED_LIMIT = 0x477fe001 };
enum { MXFP4_LIMIT = 0x7f400001 }; /* 12 * 2^124: twice as much, the next code, is no float */

/* Bits of the nearest bfloat16: half a last place is added, less one where the last place is even. */
EI_INLINE void to_bf16(uint16_t *out, vf x) {
    vi bits = vf_bits(x), odd = vi_and(vi_shr(bits, 16), vi_set(1));
    vi_to_u16(out, vi_shr(vi_add(bits, vi_add(vi_set(0x7fff), odd)), 16));
}

EI_INLINE bool encode_floats(const ei_encode_rows *rows, int32_t limit, void (*convert)(uint16_t *, vf)) {
    vi most = vi_zero();
    for (int32_t r = 0; r < rows->n_rows; r++) {
        const float *x = rows->x + (size_t)r * (size_t)rows->n_columns;
        uint8_t *out = rows->out + (size_t)r * rows->row_bytes;
        for (int64_t k = 0; k < rows->n_columns; k += EI_LANES) {
            int n = (int)(rows->n_columns - k < EI_LANES ? rows->n_columns - k : EI_LANES);
            uint16_t halves[EI_LANES];
            vf values = n == EI_LANES ? vf_load(x + k) : vf_load_n(x + k, n);
            most = vi_max(most, vf_bits(vf_abs(values)));
            convert(halves, values);
            memcpy(out + 2 * k, halves, 2 * (size_t)n);
        }
    }
    return vi_max_all(most) < limit;
}
static bool encode_f16(const ei_encode_rows *rows) { return encode_floats(rows, F16_LIMIT, vf_to_f16); }
static bool encode_bf16(const ei_encode_rows *rows) { return encode_floats(rows, BF16_LIMIT, to_bf16); }
static bool encode_f32(const ei_encode_rows *rows) {
    bool finite = true;
    size_t n = (size_t)rows->n_rows * (size_t)rows->n_columns;
    for (size_t i = 0; i < n; i++) finite &= (f32_bits(rows->x[i]) & 0x7fffffffu) < F32_LIMIT;
    memcpy(rows->out, rows->x, n * sizeof *rows->x);
    return finite;
}

/* -- blocks of 32 --------------------------------------------------------------------------- */

typedef enum { NIBBLES, FIFTH_BITS, BYTES } code_layout;

/* A format of blocks of 32: an f16 scale (and minimum), then the codes. */
typedef struct {
    code_values values;
    code_layout layout;
    bool has_min, both;
    targets at;
    int rounds;
    float emphasis;
} block_kind;

/* The fifth bits of codes 4g .. 4g + 3 in bits 4g .. 4g + 3. */
EI_INLINE vi fifth_bits(const uint32_t words[][EI_LANES]) {
    vi out = vi_zero();
    for (int g = 0; g < EI_BLOCK / 4; g++) {
        vi bits = vi_and(vi_shr(vi_load(words[g]), 4), vi_set(LOW_BITS));
        bits = vi_or(bits, vi_or(vi_shr(bits, 7), vi_or(vi_shr(bits, 14), vi_shr(bits, 21))));
        out = vi_or(out, vi_shl(vi_and(bits, vi_set(15)), 4 * g));
    }
    return out;
}

EI_INLINE void put_block_codes(const block_rows *to, size_t offset, code_layout layout,
                               const uint32_t words[][EI_LANES]) {
    if (layout == BYTES) {
        for (int g = 0; g < EI_BLOCK / 4; g++) put_word(to, offset + 4 * (size_t)g, vi_load(words[g]));
        return;
    }
    if (layout == FIFTH_BITS) {
        put_word(to, offset, fifth_bits(words));
        offset += 4;
    }
    for (int g = 0; g < 4; g++) put_word(to, offset + 4 * (size_t)g, interleaved(words, g, 4, 2, 0, LOW_NIBBLES, 4));
}

/* With so many codes the sums of find_scale have too few digits to tell one scale's error from another's: the scales
 * are tried as f16 holds them, and the errors added up themselves. Scales that are subnormal as f16 are rounded by more
 * than a little, and where that is down, the largest values are clipped: the f16 above the first is tried, too. */
EI_INLINE vf find_fine_scale(run_of x, run_of w, int n, code_values values, targets at) {
    vf low, high, best = vf_zero(), least = vf_set(INFINITY);
    extremes(x, n, &low, &high);
    vf largest = vf_max(high, vf_sub(vf_zero(), low));
    vf first = vf_div(largest, vf_set(at.first));
    vf subnormal = vf_select_ge(first, vf_set(0x1p-14f), vf_zero(), first);
    vf above = vf_select_ge(first, vf_set(0x1p-14f), first, vf_add(first, vf_set(0x1p-24f)));
    int n_tried = at.n + (vi_max_all(vf_bits(subnormal)) > 0);
    for (int i = 0; i < n_tried; i++) {
        uint16_t bits[EI_LANES];
        vf scale = i < at.n ? vf_div(largest, vf_set(at.first + at.step * (float)i)) : above;
        scale = round_scale(scale, bits);
        vf inverse = inverse_of(scale), error = vf_zero();
        for (int k = 0; k < n; k++) {
            vf value = vf_load(x[k]), rest = vf_fnma(scale, nearest(values, value, inverse), value);
            error = vf_fma(vf_mul(vf_load(w[k]), rest), rest, error);
        }
        best = vf_select_ge(error, least, best, scale);
        least = vf_min(error, least);
    }
    return best;
}

EI_INLINE void encode_block(const block_kind *kind, const panel *p, const block_rows *to) {
    uint16_t scale_bits[EI_LANES], min_bits[EI_LANES];
    uint32_t words[EI_BLOCK / 4][EI_LANES];
    vf scale, min = vf_zero();
    if (kind->has_min) {
        min_fit fit = find_min(p->x, p->w, EI_BLOCK, kind->values.high, false, kind->at, kind->rounds);
        scale = fit.scale, min = round_f16(fit.min, min_bits);
    } else if (kind->layout == BYTES) {
        scale = find_fine_scale(p->x, p->w, EI_BLOCK, kind->values, kind->at);
    } else {
        scale = find_scale(p->x, p->w, EI_BLOCK, kind->values, kind->at, kind->both, kind->rounds).scale;
    }
    vf inverse = inverse_of(round_scale(scale, scale_bits));
    for (int g = 0; g < EI_BLOCK / 4; g++) {
        vi four[4];
        for (int i = 0; i < 4; i++) {
            vf x = vf_load(p->x[4 * g + i]);
            four[i] = code_of(kind->values, kind->has_min ? at_or_above(x, min, inverse, kind->values.high)
                                                          : nearest(kind->values, x, inverse));
            if (kind->layout == BYTES)
                four[i] = vi_and(vi_add(four[i], vi_set((int32_t)kind->values.low)), vi_set(255));
        }
        put_codes(words[g], four);
    }
    put_u16(to, 0, scale_bits);
    if (kind->has_min) put_u16(to, 2, min_bits);
    put_block_codes(to, kind->has_min ? 4 : 2, kind->layout, words);
}

EI_INLINE bool encode_blocks(const block_kind *kind, size_t block_bytes, const ei_encode_rows *rows) {
    panel p;
    int32_t most = 0;
    block_rows to = {rows->out, rows->row_bytes, rows->n_rows};
    for (int64_t column = 0; column < rows->n_columns; column += EI_BLOCK, to.at += block_bytes) {
        most = max_i32(most, load_panel(rows, column, EI_BLOCK, &p));
        weigh(&p, EI_BLOCK, rows->importance ? rows->importance + column : NULL, kind->emphasis);
        encode_block(kind, &p, &to);
    }
    return most < SCALED_LIMIT;
}

#define BLOCK_FORMAT(name, ...)                                                                                        \
    static bool encode_##name(const ei_encode_rows *rows) {                                                            \
        static const block_kind kind = {__VA_ARGS__};                                                                  \
        return encode_blocks(&kind, sizeof(block_##name), rows);                                                       \
    }
BLOCK_FORMAT(q4_0, {WHOLE, -8, 7}, NIBBLES, false, true, {-9.0f, 0.5f, 5}, 1, 0.1f)
BLOCK_FORMAT(q4_1, {WHOLE, 0, 15}, NIBBLES, true, false, {13.5f, 0.5f, 7}, 2, 0.0f)
BLOCK_FORMAT(q5_0, {WHOLE, -16, 15}, FIFTH_BITS, false, true, {-17.0f, 0.5f, 5}, 1, 0.1f)
BLOCK_FORMAT(q5_1, {WHOLE, 0, 31}, FIFTH_BITS, true, false, {29.0f, 0.5f, 8}, 2, 0.0f)
BLOCK_FORMAT(q8_0, {WHOLE, -127, 127}, BYTES, false, false, {127.0f, -1.0f, 4}, 0, 0.0f)
BLOCK_FORMAT(iq4_nl, {IQ4, -127, 113}, NIBBLES, false, true, {-140.0f, 4.0f, 8}, 2, 0.0f)
#undef BLOCK_FORMAT

/* -- MXFP4: the scale is a power of two ------------------------------------------------------- */

/* The sum of w*(x/scale - code)^2, scale = 2^(e - 128): x may be too large for its square. */
EI_INLINE vf error_of_power(const panel *p, vi e) {
    vf inverse = vf_from_bits(vi_shl(vi_sub(vi_set(255), e), 23)), error = vf_zero();
    for (int k = 0; k < EI_BLOCK; k++) {
        vf t = vf_mul(vf_load(p->x[k]), inverse), rest = vf_sub(t, nearest_fp4(t));
        error = vf_fma(vf_mul(vf_load(p->w[k]), rest), rest, error);
    }
    return error;
}

EI_INLINE void encode_mxfp4_block(const panel *p, const block_rows *to) {
    uint32_t words[EI_BLOCK / 4][EI_LANES];
    vi bits = vi_zero();
    for (int k = 0; k < EI_BLOCK; k++) bits = vi_max(bits, vf_bits(vf_abs(vf_load(p->x[k]))));
    /* the largest value at 1 to 2 times 8 of the codes' 12; half and twice that scale are tried, too */
    vi middle = vi_max(vi_sub(vi_shr(bits, 23), vi_set(2)), vi_set(3));
    vf best = vf_set(INFINITY), best_step = vf_zero();
    for (int step = -1; step <= 1; step++) {
        vi e = vi_add(middle, vi_set(step));
        vf error = vf_mul(error_of_power(p, e), vf_set(step < 0 ? 0.25f : step ? 4.0f : 1.0f));
        best_step = vf_select_ge(error, best, best_step, vf_set((float)step));
        best = vf_min(error, best);
    }
    vi e = vi_add(middle, vi_round(best_step));
    vf inverse = vf_from_bits(vi_shl(vi_sub(vi_set(255), e), 23));
    code_values values = {FP4, -12, 12};
    for (int g = 0; g < EI_BLOCK / 4; g++) {
        vi four[4];
        for (int i = 0; i < 4; i++) four[i] = code_of(values, nearest(values, vf_load(p->x[4 * g + i]), inverse));
        put_codes(words[g], four);
    }
    put_u8(to, 0, e);
    put_block_codes(to, 1, NIBBLES, words);
}

static bool encode_mxfp4(const ei_encode_rows *rows) {
    panel p;
    int32_t most = 0;
    block_rows to = {rows->out, rows->row_bytes, rows->n_rows};
    for (int64_t column = 0; column < rows->n_columns; column += EI_BLOCK, to.at += sizeof(block_mxfp4)) {
        most = max_i32(most, load_panel(rows, column, EI_BLOCK, &p));
        weigh(&p, EI_BLOCK, rows->importance ? rows->importance + column : NULL, 0.0f);
        encode_mxfp4_block(&p, &to);
    }
    return most < MXFP4_LIMIT;
}
