/* edgeinfer/csrc/ops/encode_template.h: the encoders of one ISA, a row a format.
 *
 * The including file defines EI_ISA, EI_FN, the verbs (isa/scalar_verbs.h) and ops/math_template.h.
 */
#include "encode_panel_template.h"

#include "encode_search_template.h"

#include "encode_blocks_template.h"

#include "encode_super_template.h"

const ei_encode_fn EI_FN(encode)[EI_N_FORMATS] = {
    [EI_F32] = encode_f32,       [EI_F16] = encode_f16,     [EI_BF16] = encode_bf16, [EI_Q4_0] = encode_q4_0,
    [EI_Q4_1] = encode_q4_1,     [EI_Q5_0] = encode_q5_0,   [EI_Q5_1] = encode_q5_1, [EI_Q8_0] = encode_q8_0,
    [EI_IQ4_NL] = encode_iq4_nl, [EI_MXFP4] = encode_mxfp4, [EI_Q2_K] = encode_q2_k, [EI_Q3_K] = encode_q3_k,
    [EI_Q4_K] = encode_q4_k,     [EI_Q5_K] = encode_q5_k,   [EI_Q6_K] = encode_q6_k, [EI_IQ4_XS] = encode_iq4_xs,
};
