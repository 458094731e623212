/* edgeinfer/csrc/ops/table_template.h: the kernel table of the including ISA; included last. */

const ei_kernels EI_JOIN(ei_kernels, EI_ISA) = {
    .isa = EI_TEXT(EI_ISA),
    .max_columns = EI_MAX_COLUMNS,
    .matmul = {[EI_F32] = FLOAT_ROW(f32),
               [EI_F16] = FLOAT_ROW(f16),
               [EI_BF16] = FLOAT_ROW(bf16),
#define ROW(NAME, name) [EI_##NAME] = INTEGER_ROW(name),
               EI_INTEGER_FORMATS(ROW)
#undef ROW
    },
    .quantize = EI_FN(quantize),
    .quantize_part = EI_FN(quantize_part),
    .rms_norm = EI_FN(rms_norm),
    .add = EI_FN(add),
    .multiply = EI_FN(multiply),
    .scale = EI_FN(scale),
    .act = EI_FN(act),
    .gated = EI_FN(gated),
    .rope = EI_FN(rope),
    .kv_store = EI_FN(kv_store),
    .attention_chunk = EI_FN(attention_chunk),
    .attention_merge = EI_FN(attention_merge),
    .attention_finish = EI_FN(attention_finish),
};
