/* edgeinfer/csrc/ops/table_template.h: the kernel table of the including ISA; included last.
 *
 * Matmul, attention and the peak loop are files of their own, so that a change of one does not compile the other again.
 */

extern const ei_matmul_fn EI_FN(matmul)[EI_N_FORMATS][2];
extern const ei_encode_fn EI_FN(encode)[EI_N_FORMATS];
void EI_FN(attention_query)(const ei_kv *kv, const float *q, float scale, float *out);
void EI_FN(kv_store)(const ei_kv *kv, int32_t page, int32_t slot, const float *k, const float *v);
void EI_FN(attention_chunk)(const ei_attention_rows *rows, int32_t chunk, float *m, float *l, float *o, float *scratch);
void EI_FN(attention_merge)(int32_t value_dim, float *m, float *l, float *o, float mc, float lc, const float *oc);
void EI_FN(attention_finish)(int32_t value_dim, float m, float l, const float *o, const float *sink, float *out);
int64_t EI_FN(peak)(int32_t kind, int64_t n_turns);

const ei_kernels EI_FN(kernels) = {
    .isa = EI_TEXT(EI_ISA),
    .repack = EI_FN(repack),
    .encode = EI_FN(encode),
    .fine_words = EI_FINE_WORDS,
    .matmul = EI_FN(matmul),
    .quantize = EI_FN(quantize),
    .quantize_part = EI_FN(quantize_part),
    .from_f16 = EI_FN(from_f16),
    .center = EI_FN(center),
    .rms_norm = EI_FN(rms_norm),
    .add = EI_FN(add),
    .multiply = EI_FN(multiply),
    .scale = EI_FN(scale),
    .accumulate = EI_FN(accumulate),
    .softmax = EI_FN(softmax),
    .act = EI_FN(act),
    .gated = EI_FN(gated),
    .swiglu_oai = EI_FN(swiglu_oai),
    .rope = EI_FN(rope),
    .attention_query = EI_FN(attention_query),
    .kv_store = EI_FN(kv_store),
    .attention_chunk = EI_FN(attention_chunk),
    .attention_merge = EI_FN(attention_merge),
    .attention_finish = EI_FN(attention_finish),
    .convolve = EI_FN(convolve),
    .scan = EI_FN(scan),
    .delta = EI_FN(delta),
    .peak = EI_FN(peak),
};
