/* edgeinfer/csrc/ops/encode_super_template.h: encode the formats of 256 values with whole scales of sub-blocks.
 *
 * The including file defines the verbs, ops/math_template.h and the other encode templates. Every sub-block finds the
 * scale (and minimum) that suit it; these become whole numbers times the block's d (and dmin). Then, in turns: each
 * sub-block moves its whole numbers to the best neighbours, given d, and d is solved for again, given the codes.
 */

enum { MOST_SUBS = 16 };

/* A format of super-blocks: n_subs sub-blocks, their scales whole numbers of scale_low .. scale_high. */
typedef struct {
    code_values values;
    int n_subs, scale_low, scale_high;
    bool has_min, both;
    targets at;
    int rounds, turns;
    float emphasis, emphasis_for_logits;
} super_kind;

/* What a block of each of 16 rows is made of: whole scales and minima, [sub-block][row], and codes, [k/4][row], byte i
 * of a dword being that of element k + i. */
typedef struct {
    uint16_t d[EI_LANES], dmin[EI_LANES];
    _Alignas(64) float scales[MOST_SUBS][EI_LANES], mins[MOST_SUBS][EI_LANES];
    _Alignas(64) uint32_t codes[PANEL_LEN / 4][EI_LANES];
} super_block;

/* Whole numbers in units of the scale that suits them best, weighted. */
static vf whole_scale(const float (*found)[EI_LANES], const float (*weights)[EI_LANES], const super_kind *kind,
                      bool both) {
    code_values whole = {WHOLE, (float)kind->scale_low, (float)kind->scale_high};
    float most = kind->scale_low < 0 ? -(float)kind->scale_low : (float)kind->scale_high;
    return find_scale(found, weights, kind->n_subs, whole, (targets){most, -0.03f * most, 10}, both, 1).scale;
}

/* round_scale of that. A d that is subnormal as f16 may be rounded down by so much that the largest scale is out of
 * reach of whole numbers: the next f16 then. */
EI_INLINE vf round_whole_scale(vf d, const float (*found)[EI_LANES], const super_kind *kind, uint16_t bits[EI_LANES]) {
    bool is_signed = kind->scale_low < 0;
    float most = is_signed ? -(float)kind->scale_low : (float)kind->scale_high;
    vf largest = vf_zero();
    for (int j = 0; j < kind->n_subs; j++) {
        vf scale = vf_load(found[j]);
        largest = vf_max(largest, is_signed ? vf_abs(scale) : scale);
    }
    d = round_scale(d, bits);
    vf magnitude = vf_abs(d), next = vf_signed_as(vf_add(magnitude, vf_set(0x1p-24f)), d);
    next = vf_select_ge(vf_mul(magnitude, vf_set(1.03f * most)), largest, d, next);
    return round_scale(vf_select_ge(magnitude, vf_set(0x1p-18f), d, next), bits);
}

EI_INLINE vf whole_near(vf found, vf inverse, const super_kind *kind) {
    return nearest((code_values){WHOLE, (float)kind->scale_low, (float)kind->scale_high}, found, inverse);
}

/* -- scales alone --------------------------------------------------------------------------- */

/* Move each scale to its best neighbour; returns the best d for the codes that gives. */
EI_INLINE vf settle_scales(const super_kind *kind, const panel *p, vf d, super_block *b) {
    int n = PANEL_LEN / kind->n_subs;
    vf products = vf_zero(), squares = vf_zero();
    for (int j = 0; j < kind->n_subs; j++) {
        vf at = vf_load(b->scales[j]), best = vf_set(-1.0f), best_scale = at, best_xq = vf_zero(), best_qq = vf_zero();
        for (int step = -1; step <= 1; step++) {
            vf whole = vf_add(at, vf_set((float)step));
            whole = vf_max(vf_min(whole, vf_set((float)kind->scale_high)), vf_set((float)kind->scale_low));
            vf scale = vf_mul(d, whole);
            scale_sums sums = sums_by_scale(p->x + j * n, p->w + j * n, n, kind->values, inverse_of(scale));
            vf gain = vf_mul(scale, vf_fnma(scale, sums.squares, vf_add(sums.products, sums.products)));
            best_scale = vf_select_ge(gain, best, whole, best_scale);
            best_xq = vf_select_ge(gain, best, sums.products, best_xq);
            best_qq = vf_select_ge(gain, best, sums.squares, best_qq);
            best = vf_select_ge(gain, best, gain, best);
        }
        vf_store(b->scales[j], best_scale);
        products = vf_fma(best_scale, best_xq, products);
        squares = vf_fma(vf_mul(best_scale, best_scale), best_qq, squares);
    }
    return ratio(products, squares);
}

EI_INLINE void fit_scales(const super_kind *kind, const panel *p, super_block *b) {
    int n = PANEL_LEN / kind->n_subs;
    _Alignas(64) float found[MOST_SUBS][EI_LANES], weights[MOST_SUBS][EI_LANES];
    for (int j = 0; j < kind->n_subs; j++) {
        scale_fit fit = find_scale(p->x + j * n, p->w + j * n, n, kind->values, kind->at, kind->both, kind->rounds);
        vf_store(found[j], fit.scale);
        vf_store(weights[j], fit.squares);
    }
    vf d = round_whole_scale(whole_scale(found, weights, kind, true), found, kind, b->d), inverse = inverse_of(d);
    for (int j = 0; j < kind->n_subs; j++) vf_store(b->scales[j], whole_near(vf_load(found[j]), inverse, kind));
    for (int turn = 0; turn < kind->turns; turn++) d = round_scale(settle_scales(kind, p, d, b), b->d);
    for (int j = 0; j < kind->n_subs; j++) {
        vf by = inverse_of(vf_mul(d, vf_load(b->scales[j])));
        for (int g = j * n / 4; g < (j + 1) * n / 4; g++) {
            vi four[4];
            for (int i = 0; i < 4; i++)
                four[i] = code_of(kind->values, nearest(kind->values, vf_load(p->x[4 * g + i]), by));
            put_codes(b->codes[g], four);
        }
    }
}

/* -- scales and minima ---------------------------------------------------------------------- */

/* The normal equations of x ~ d*(scale*code) - dmin*min over a block. */
typedef struct {
    vf dd, dm, mm, xd, xm;
} block_sums;

EI_INLINE void solve_block(const block_sums *sums, vf *d, vf *dmin) {
    vf whole = vf_mul(sums->dd, sums->mm), determinant = vf_fnma(sums->dm, sums->dm, whole);
    vf usable = vf_sub(determinant, vf_mul(whole, vf_set(0x1p-18f)));
    vf by = inverse_of(vf_select_ge(usable, vf_zero(), determinant, vf_zero()));
    vf solved_d = vf_mul(vf_fnma(sums->xm, sums->dm, vf_mul(sums->xd, sums->mm)), by);
    vf solved_min = vf_mul(vf_fnma(sums->xm, sums->dd, vf_mul(sums->xd, sums->dm)), by);
    vf least = vf_set(0x1p-126f);
    /* without minima, or without scales, the other alone */
    vf alone_d = ratio(sums->xd, sums->dd), alone_min = vf_sub(vf_zero(), ratio(sums->xm, sums->mm));
    *d = vf_select_ge(by, least, solved_d, vf_select_ge(sums->mm, least, *d, alone_d));
    *dmin = vf_select_ge(by, least, solved_min, vf_select_ge(sums->dd, least, *dmin, alone_min));
}

EI_INLINE void settle_mins(const super_kind *kind, const panel *p, const run_sums *runs, vf *d, vf *dmin,
                           super_block *b) {
    int n = PANEL_LEN / kind->n_subs;
    vf high = vf_set((float)kind->scale_high);
    block_sums sums = {vf_zero(), vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (int j = 0; j < kind->n_subs; j++) {
        vf scale_at = vf_load(b->scales[j]), min_at = vf_load(b->mins[j]), best = vf_set(-INFINITY);
        vf best_scale = scale_at, best_min = min_at;
        min_sums best_sums = {vf_zero(), vf_zero(), vf_zero()};
        for (int step = 0; step < 9; step++) {
            vf whole = vf_max(vf_min(vf_add(scale_at, vf_set((float)(step / 3 - 1))), high), vf_zero());
            vf whole_min = vf_max(vf_min(vf_add(min_at, vf_set((float)(step % 3 - 1))), high), vf_zero());
            vf scale = vf_mul(*d, whole), min = vf_sub(vf_zero(), vf_mul(*dmin, whole_min));
            min_sums s = sums_by_min(p->x + j * n, p->w + j * n, n, kind->values.high, inverse_of(scale), min);
            /* 2*(scale*products + min*wx) - (scale^2*squares + 2*scale*min*codes + min^2*w) */
            vf from_scale = vf_fnma(scale, s.squares, vf_add(s.products, s.products));
            vf from_min = vf_fnma(min, runs[j].w, vf_add(runs[j].wx, runs[j].wx));
            vf mixed = vf_mul(vf_mul(scale, vf_add(min, min)), s.codes);
            vf gain = vf_sub(vf_fma(scale, from_scale, vf_mul(min, from_min)), mixed);
            best_scale = vf_select_ge(gain, best, whole, best_scale);
            best_min = vf_select_ge(gain, best, whole_min, best_min);
            best_sums.codes = vf_select_ge(gain, best, s.codes, best_sums.codes);
            best_sums.squares = vf_select_ge(gain, best, s.squares, best_sums.squares);
            best_sums.products = vf_select_ge(gain, best, s.products, best_sums.products);
            best = vf_select_ge(gain, best, gain, best);
        }
        vf_store(b->scales[j], best_scale);
        vf_store(b->mins[j], best_min);
        sums.dd = vf_fma(vf_mul(best_scale, best_scale), best_sums.squares, sums.dd);
        sums.dm = vf_fma(vf_mul(best_scale, best_min), best_sums.codes, sums.dm);
        sums.mm = vf_fma(vf_mul(best_min, best_min), runs[j].w, sums.mm);
        sums.xd = vf_fma(best_scale, best_sums.products, sums.xd);
        sums.xm = vf_fma(best_min, runs[j].wx, sums.xm);
    }
    solve_block(&sums, d, dmin);
}

EI_INLINE void fit_mins(const super_kind *kind, const panel *p, super_block *b) {
    int n = PANEL_LEN / kind->n_subs;
    _Alignas(64) float found[MOST_SUBS][EI_LANES], weights[MOST_SUBS][EI_LANES];
    _Alignas(64) float found_min[MOST_SUBS][EI_LANES], min_weights[MOST_SUBS][EI_LANES];
    run_sums runs[MOST_SUBS];
    for (int j = 0; j < kind->n_subs; j++) {
        min_fit fit = find_min(p->x + j * n, p->w + j * n, n, kind->values.high, true, kind->at, kind->rounds);
        runs[j] = sums_of(p->x + j * n, p->w + j * n, n);
        vf_store(found[j], fit.scale);
        vf_store(weights[j], fit.spread);
        vf_store(found_min[j], vf_sub(vf_zero(), fit.min));
        vf_store(min_weights[j], runs[j].w);
    }
    vf d = round_whole_scale(whole_scale(found, weights, kind, false), found, kind, b->d);
    vf dmin = round_whole_scale(whole_scale(found_min, min_weights, kind, false), found_min, kind, b->dmin);
    vf inverse = inverse_of(d), inverse_min = inverse_of(dmin);
    for (int j = 0; j < kind->n_subs; j++) {
        vf_store(b->scales[j], whole_near(vf_load(found[j]), inverse, kind));
        vf_store(b->mins[j], whole_near(vf_load(found_min[j]), inverse_min, kind));
    }
    for (int turn = 0; turn < kind->turns; turn++) {
        settle_mins(kind, p, runs, &d, &dmin, b);
        d = round_scale(d, b->d), dmin = round_scale(dmin, b->dmin);
    }
    for (int j = 0; j < kind->n_subs; j++) {
        vf by = inverse_of(vf_mul(d, vf_load(b->scales[j])));
        vf min = vf_sub(vf_zero(), vf_mul(dmin, vf_load(b->mins[j])));
        for (int g = j * n / 4; g < (j + 1) * n / 4; g++) {
            vi four[4];
            for (int i = 0; i < 4; i++)
                four[i] = vi_round(at_or_above(vf_load(p->x[4 * g + i]), min, by, kind->values.high));
            put_codes(b->codes[g], four);
        }
    }
}

/* -- the bytes of each format --------------------------------------------------------------- */

/* Whole numbers plus `bias` as bytes of dwords. */
EI_INLINE void scale_words(const float (*whole)[EI_LANES], int n, int32_t bias, uint32_t words[][EI_LANES]) {
    for (int g = 0; g < n / 4; g++) {
        vi four[4];
        for (int i = 0; i < 4; i++)
            four[i] = vi_and(vi_add(vi_round(vf_load(whole[4 * g + i])), vi_set(bias)), vi_set(255));
        put_codes(words[g], four);
    }
}

/* Words of a field: `n` of them from `offset` on, each of `of` words of codes `step` apart. */
EI_INLINE void put_fields(const block_rows *to, size_t offset, const super_block *b, int first, int n, int step, int of,
                          int down, int32_t mask, int by) {
    for (int i = 0; i < n; i++)
        put_word(to, offset + 4 * (size_t)i, interleaved(b->codes, first + i, step, of, down, mask, by));
}

static void pack_q2_k(const super_block *b, const block_rows *to) {
    uint32_t s[4][EI_LANES], m[4][EI_LANES];
    scale_words(b->scales, 16, 0, s);
    scale_words(b->mins, 16, 0, m);
    for (int g = 0; g < 4; g++)
        put_word(to, offsetof(block_q2_k, scales) + 4 * (size_t)g, vi_or(vi_load(s[g]), vi_shl(vi_load(m[g]), 4)));
    for (int h = 0; h < 2; h++)
        put_fields(to, offsetof(block_q2_k, codes) + 32 * (size_t)h, b, 32 * h, 8, 8, 4, 0, LOW_PAIRS, 2);
    put_u16(to, offsetof(block_q2_k, d), b->d);
    put_u16(to, offsetof(block_q2_k, dmin), b->dmin);
}

static void pack_q3_k(const super_block *b, const block_rows *to) {
    uint32_t s[4][EI_LANES];
    size_t scales = offsetof(block_q3_k, scales);
    scale_words(b->scales, 16, 32, s);
    put_fields(to, offsetof(block_q3_k, high), b, 0, 8, 8, 8, 2, LOW_BITS, 1);
    for (int h = 0; h < 2; h++)
        put_fields(to, offsetof(block_q3_k, codes) + 32 * (size_t)h, b, 32 * h, 8, 8, 4, 0, LOW_PAIRS, 2);
    put_word(to, scales, interleaved(s, 0, 2, 2, 0, LOW_NIBBLES, 4));
    put_word(to, scales + 4, interleaved(s, 1, 2, 2, 0, LOW_NIBBLES, 4));
    put_word(to, scales + 8, interleaved(s, 0, 1, 4, 4, LOW_PAIRS, 2));
    put_u16(to, offsetof(block_q3_k, d), b->d);
}

/* 8 scales and 8 minima of 6 bits (formats.h) */
EI_INLINE void put_k4_scales(const super_block *b, const block_rows *to, size_t offset) {
    uint32_t words[4][EI_LANES];
    scale_words(b->scales, 8, 0, words);
    scale_words(b->mins, 8, 0, words + 2);
    for (int w = 0; w < 4; w += 2)
        put_word(to, offset + 2 * (size_t)w,
                 vi_or(vi_load(words[w]), vi_shl(interleaved(words, w + 1, 1, 1, 4, LOW_PAIRS, 0), 6)));
    put_word(to, offset + 8, interleaved(words, 1, 2, 2, 0, LOW_NIBBLES, 4));
}

static void pack_q4_k(const super_block *b, const block_rows *to) {
    put_u16(to, offsetof(block_q4_k, d), b->d);
    put_u16(to, offsetof(block_q4_k, dmin), b->dmin);
    put_k4_scales(b, to, offsetof(block_q4_k, scales));
    for (int pair = 0; pair < 4; pair++)
        put_fields(to, offsetof(block_q4_k, codes) + 32 * (size_t)pair, b, 16 * pair, 8, 8, 2, 0, LOW_NIBBLES, 4);
}

static void pack_q5_k(const super_block *b, const block_rows *to) {
    put_u16(to, offsetof(block_q5_k, d), b->d);
    put_u16(to, offsetof(block_q5_k, dmin), b->dmin);
    put_k4_scales(b, to, offsetof(block_q5_k, scales));
    put_fields(to, offsetof(block_q5_k, high), b, 0, 8, 8, 8, 4, LOW_BITS, 1);
    for (int pair = 0; pair < 4; pair++)
        put_fields(to, offsetof(block_q5_k, codes) + 32 * (size_t)pair, b, 16 * pair, 8, 8, 2, 0, LOW_NIBBLES, 4);
}

static void pack_q6_k(const super_block *b, const block_rows *to) {
    uint32_t s[4][EI_LANES];
    scale_words(b->scales, 16, 0, s);
    for (int h = 0; h < 2; h++) {
        put_fields(to, offsetof(block_q6_k, low) + 64 * (size_t)h, b, 32 * h, 16, 16, 2, 0, LOW_NIBBLES, 4);
        put_fields(to, offsetof(block_q6_k, high) + 32 * (size_t)h, b, 32 * h, 8, 8, 4, 4, LOW_PAIRS, 2);
    }
    for (int g = 0; g < 4; g++) put_word(to, offsetof(block_q6_k, scales) + 4 * (size_t)g, vi_load(s[g]));
    put_u16(to, offsetof(block_q6_k, d), b->d);
}

static void pack_iq4_xs(const super_block *b, const block_rows *to) {
    vi low = vi_zero(), high = vi_zero();
    uint16_t bits[EI_LANES];
    for (int j = 0; j < 8; j++) {
        vi scale = vi_add(vi_round(vf_load(b->scales[j])), vi_set(32));
        low = vi_or(low, vi_shl(vi_and(scale, vi_set(15)), 4 * j));
        high = vi_or(high, vi_shl(vi_shr(scale, 4), 2 * j));
    }
    vi_to_u16(bits, high);
    put_u16(to, offsetof(block_iq4_xs, d), b->d);
    put_u16(to, offsetof(block_iq4_xs, scales_high), bits);
    put_word(to, offsetof(block_iq4_xs, scales_low), low);
    for (int j = 0; j < 8; j++)
        put_fields(to, offsetof(block_iq4_xs, codes) + 16 * (size_t)j, b, 8 * j, 4, 4, 2, 0, LOW_NIBBLES, 4);
}

/* -- whole rows ----------------------------------------------------------------------------- */

EI_INLINE bool encode_supers(const super_kind *kind, size_t block_bytes,
                             void (*pack)(const super_block *, const block_rows *), const ei_encode_rows *rows) {
    panel p;
    super_block b;
    int32_t most = 0;
    float emphasis = rows->for_logits ? kind->emphasis_for_logits : kind->emphasis;
    block_rows to = {rows->out, rows->row_bytes, rows->n_rows};
    for (int64_t column = 0; column < rows->n_columns; column += PANEL_LEN, to.at += block_bytes) {
        most = max_i32(most, load_panel(rows, column, PANEL_LEN, &p));
        weigh(&p, PANEL_LEN, rows->importance ? rows->importance + column : NULL, emphasis);
        if (kind->has_min)
            fit_mins(kind, &p, &b);
        else
            fit_scales(kind, &p, &b);
        pack(&b, &to);
    }
    return most < SCALED_LIMIT;
}

#define SUPER_FORMAT(name, ...)                                                                                        \
    static bool encode_##name(const ei_encode_rows *rows) {                                                            \
        static const super_kind kind = {__VA_ARGS__};                                                                  \
        return encode_supers(&kind, sizeof(block_##name), pack_##name, rows);                                          \
    }
SUPER_FORMAT(q2_k, {WHOLE, 0, 3}, 16, 0, 15, true, false, {2.0f, 0.125f, 17}, 3, 3, 0.0f, 0.0f)
SUPER_FORMAT(q3_k, {WHOLE, -4, 3}, 16, -32, 31, false, true, {-5.0f, 0.2f, 12}, 2, 2, 0.1f, 0.1f)
SUPER_FORMAT(q4_k, {WHOLE, 0, 15}, 8, 0, 63, true, false, {13.0f, 0.25f, 17}, 3, 2, 0.0f, 0.0f)
SUPER_FORMAT(q5_k, {WHOLE, 0, 31}, 8, 0, 63, true, false, {28.0f, 0.3f, 17}, 3, 2, 0.0f, 0.0f)
SUPER_FORMAT(q6_k, {WHOLE, -32, 31}, 16, -128, 127, false, true, {-34.0f, 0.35f, 10}, 2, 2, 0.0f, 1.0f)
SUPER_FORMAT(iq4_xs, {IQ4, -127, 113}, 8, -32, 31, false, true, {-140.0f, 4.0f, 8}, 2, 2, 0.0f, 0.0f)
#undef SUPER_FORMAT
