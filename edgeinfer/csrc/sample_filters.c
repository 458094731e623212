/* edgeinfer/csrc/sample_filters.c: drop unlikely candidates, filter by filter, and draw one that stays. */
#include <float.h>
#include <math.h>

#include "philox.h"
#include "sample.h"

enum { DRAW_TOKEN = 0, DRAW_XTC = 1 };

/* Lists of an open set grow by this factor until they hold enough probability: e^-4 = 2% of the
   best token's is where most lists end. */
static const double FIRST_REACH = 4.0, REACH_GROWTH = 2.0, MOST_REACH = 700.0;

/* Below this, differences of logits would overflow when divided by it. */
static const double LEAST_TEMPERATURE = 1e-6;

static double tree_sum(double *lane) {
    for (int step = EI_SUM_LANES / 2; step > 0; step /= 2)
        for (int j = 0; j < step; j++) lane[j] += lane[j + step];
    return lane[0];
}

ei_mass ei_open_mass(const ei_sampler *s, double temperature) {
    double sum[EI_SUM_LANES] = {0}, dot[EI_SUM_LANES] = {0};
    int32_t n_groups = s->n_vocab / EI_SUM_LANES;
    (s->wide ? ei_mass_wide : ei_mass_lanes)(s->row, n_groups, s->top, temperature, sum, dot);
    for (int32_t i = n_groups * EI_SUM_LANES; i < s->n_vocab; i++) {
        double d = ((double)s->row[i] - s->top) / temperature, w = exp_neg(d);
        sum[i % EI_SUM_LANES] += w;
        dot[i % EI_SUM_LANES] += w * (d > EI_LEAST ? d : EI_LEAST);
    }
    return (ei_mass){tree_sum(sum), tree_sum(dot)};
}

/* weights[i] = the probability of candidate i relative to the first's; returns their mass. */
static ei_mass weigh(ei_sampler *s, double temperature) {
    ei_mass mass = {0.0, 0.0};
    double first = key_logit(s->keys[0]);
    for (int32_t i = 0; i < s->n_listed; i++) {
        double d = (key_logit(s->keys[i]) - first) / temperature, w = exp_neg(d);
        s->weights[i] = w;
        mass.sum += w;
        mass.dot += w * (d > EI_LEAST ? d : EI_LEAST);
    }
    return mass;
}

/* The first count of candidates whose weights reach `wanted`; 0: all together do not. */
static int32_t reach(const ei_sampler *s, double wanted, bool beyond) {
    double sum = 0.0;
    for (int32_t i = 0; i < s->n_listed; i++) {
        sum += s->weights[i];
        if (beyond ? sum > wanted : sum >= wanted) return i + 1;
    }
    return 0;
}

static int32_t n_unbanned(const ei_sampler *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) n += s->row[i] > -INFINITY;
    return n;
}

/* Keep the logits within n standard deviations of the greatest. */
static void keep_top_n_sigma(ei_sampler *s) {
    if (s->p.top_n_sigma <= 0.0) return;
    double total[EI_SUM_LANES] = {0}, squares[EI_SUM_LANES] = {0};
    double n = (double)n_unbanned(s);
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (s->row[i] > -INFINITY) total[i % EI_SUM_LANES] += (double)s->row[i] - s->top;
    double mean = tree_sum(total) / n;
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (s->row[i] > -INFINITY) {
            double d = ((double)s->row[i] - s->top) - mean;
            squares[i % EI_SUM_LANES] += d * d;
        }
    ei_rank_from(s, -(s->p.top_n_sigma * sqrt(tree_sum(squares) / n)));
}

static void keep_top_k(ei_sampler *s) {
    if (s->p.top_k <= 0) return;
    int32_t k = s->p.top_k > s->p.min_keep ? s->p.top_k : s->p.min_keep;
    if (s->n_listed == EI_OPEN)
        ei_rank_top(s, k);
    else if (s->n_listed > k)
        s->n_listed = k;
}

/* Keep the candidates whose surprise is nearest to the expected one, up to typical_p of the mass.
   Meister et al., "Locally typical sampling" (2022). */
static void keep_typical(ei_sampler *s) {
    if (s->p.typical_p >= 1.0) return;
    if (s->n_listed == EI_OPEN) ei_rank_all(s);
    ei_mass mass = weigh(s, 1.0);
    double first = key_logit(s->keys[0]), expected = mass.dot / mass.sum;
    int32_t n = s->n_listed;
    for (int32_t i = 0; i < n; i++) {
        double d = key_logit(s->keys[i]) - first;
        float apart = (float)fabs((d > EI_LEAST ? d : EI_LEAST) - expected);
        uint32_t bits;
        memcpy(&bits, &apart, 4);
        s->order[i] = (uint64_t)~bits << 32 | (uint32_t)~i;
    }
    ei_rank_sort(s->order, s->spare, n);
    double sum = 0.0;
    for (int32_t i = 0; i < n && (i < s->p.min_keep || sum <= s->p.typical_p * mass.sum); i++) {
        double *weight = &s->weights[key_id(s->order[i])];
        sum += *weight;
        *weight = -1.0; /* kept */
    }
    s->n_listed = 0;
    for (int32_t i = 0; i < n; i++)
        if (s->weights[i] < 0.0) s->keys[s->n_listed++] = s->keys[i];
}

/* Keep the smallest list that holds top_p of the mass. Holtzman et al. (2019). */
static void keep_top_p(ei_sampler *s) {
    if (s->p.top_p >= 1.0) return;
    int32_t least = s->p.min_keep > 1 ? s->p.min_keep : 1, n = 0;
    if (s->n_listed != EI_OPEN) {
        n = reach(s, s->p.top_p * weigh(s, 1.0).sum, false);
    } else {
        double wanted = s->p.top_p * ei_open_mass(s, 1.0).sum;
        for (double d = FIRST_REACH; n == 0 || s->n_listed < least; d *= REACH_GROWTH) {
            bool all = d > MOST_REACH;
            ei_rank_from(s, all ? -DBL_MAX : -d);
            weigh(s, 1.0);
            n = reach(s, wanted, false);
            if (all) break;
        }
    }
    if (n == 0) return; /* rounding left the last sum below the mass: all are kept */
    if (n < least) n = least;
    if (n < s->n_listed) s->n_listed = n;
}

/* Keep what is at least min_p times as probable as the best. */
static void keep_min_p(ei_sampler *s) {
    if (s->p.min_p <= 0.0) return;
    double bound = log_of(s->p.min_p);
    int32_t n = 1;
    if (s->n_listed == EI_OPEN) {
        ei_rank_from(s, bound);
        if (s->n_listed < s->p.min_keep) ei_rank_top(s, s->p.min_keep);
        return;
    }
    double first = key_logit(s->keys[0]);
    while (n < s->n_listed && (n < s->p.min_keep || key_logit(s->keys[n]) - first >= bound)) n++;
    s->n_listed = n;
}

/* With xtc_probability, drop all candidates above the threshold but the least of them: "exclude
   top choices". */
static void exclude_top(ei_sampler *s, int64_t position) {
    const ei_sampling *p = &s->p;
    if (p->xtc_probability <= 0.0 || p->xtc_threshold > 0.5) return; /* two cannot exceed half */
    double chance = philox_uniform(p->seed, (uint64_t)position, DRAW_XTC, (uint32_t)p->choice);
    if (chance >= p->xtc_probability) return;
    if (s->n_listed == EI_OPEN) ei_rank_all(s);
    double least = p->xtc_threshold * weigh(s, 1.0).sum;
    int32_t n_above = 0;
    while (n_above < s->n_listed && s->weights[n_above] >= least) n_above++;
    int32_t n_kept = s->n_listed - n_above + 1;
    if (n_above < 2 || n_kept < p->min_keep) return;
    memmove(s->keys, s->keys + n_above - 1, (size_t)n_kept * sizeof *s->keys);
    s->n_listed = n_kept;
}

/* The temperature, moved within its range by how undecided the candidates are. */
static double dynamic_temperature(ei_sampler *s) {
    const ei_sampling *p = &s->p;
    bool open = s->n_listed == EI_OPEN;
    int32_t n = open ? n_unbanned(s) : s->n_listed;
    if (p->dynatemp_range <= 0.0 || n < 2) return p->temperature;
    ei_mass mass = open ? ei_open_mass(s, 1.0) : weigh(s, 1.0);
    double entropy = log_of(mass.sum) - mass.dot / mass.sum;
    double share = entropy / log_of((double)n);
    share = share > 1.0 ? 1.0 : share;
    double low = p->temperature - p->dynatemp_range, high = p->temperature + p->dynatemp_range;
    low = low > 0.0 ? low : 0.0;
    double power = p->dynatemp_exponent == 0.0 ? 1.0
                   : share > 0.0               ? exp_neg(p->dynatemp_exponent * log_of(share))
                                               : 0.0;
    return low + (high - low) * power;
}

/* Draw from the list, of whose weights `mass` is wanted. Returns the index, or -1 when the list
   ends before the drawn share of a greater mass. */
static int32_t draw(ei_sampler *s, double mass, int64_t position) {
    double u = philox_uniform(s->p.seed, (uint64_t)position, DRAW_TOKEN, (uint32_t)s->p.choice);
    return reach(s, u * mass, true) - 1;
}

/* What remains when rounding left the drawn share beyond the last sum. */
static int32_t last_possible(const ei_sampler *s) {
    int32_t i = s->n_listed - 1;
    while (i > 0 && s->weights[i] <= 0.0) i--;
    return i;
}

static int32_t draw_token(ei_sampler *s, int64_t position) {
    double temperature = dynamic_temperature(s);
    if (temperature <= LEAST_TEMPERATURE) return s->n_listed == EI_OPEN ? ei_rank_first(s) : key_id(s->keys[0]);
    int32_t i = -1;
    if (s->n_listed != EI_OPEN) {
        i = draw(s, weigh(s, temperature).sum, position);
    } else {
        double mass = ei_open_mass(s, temperature).sum;
        for (double d = FIRST_REACH; i < 0; d *= REACH_GROWTH) {
            bool all = d > MOST_REACH;
            ei_rank_from(s, all ? -DBL_MAX : -(d * temperature));
            weigh(s, temperature);
            i = draw(s, mass, position);
            if (all) break;
        }
    }
    return key_id(s->keys[i < 0 ? last_possible(s) : i]);
}

/* Keep the surprise of the text near tau by cutting what is more surprising than mu, which learns.
   Basu et al., "Mirostat" (2021), algorithm 2. */
static int32_t draw_mirostat(ei_sampler *s, int64_t position) {
    const ei_sampling *p = &s->p;
    double t = p->temperature;
    if (t <= LEAST_TEMPERATURE) return ei_rank_first(s);
    ei_rank_from(s, (log_of(ei_open_mass(s, t).sum) - s->mirostat_mu * EI_LN2) * t);
    if (s->n_listed == 0) ei_rank_top(s, 1);
    double mass = weigh(s, t).sum;
    int32_t i = draw(s, mass, position);
    if (i < 0) i = last_possible(s);
    double d = (key_logit(s->keys[i]) - key_logit(s->keys[0])) / t;
    double surprise = (log_of(mass) - d) / EI_LN2;
    s->mirostat_mu -= p->mirostat_eta * (surprise - p->mirostat_tau);
    return key_id(s->keys[i]);
}

int32_t ei_choose(ei_sampler *s, int64_t position) {
    if (s->p.temperature <= 0.0) return ei_rank_first(s);
    if (s->p.mirostat) return draw_mirostat(s, position);
    keep_top_n_sigma(s);
    keep_top_k(s);
    keep_typical(s);
    keep_top_p(s);
    keep_min_p(s);
    exclude_top(s, position);
    return draw_token(s, position);
}
