"""Write encoders as BERT has them: sums normalized after each part, and what they are read for."""

from collections.abc import Sequence

from edgeinfer.arch.shared.blocks import Heads, gqa_block, head, selects_rows
from edgeinfer.arch.shared.decoder import Mlp
from edgeinfer.arch.shared.hyper import Hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder

SEPARATOR = "tokenizer.ggml.seperator_token_id"  # as files spell it


def encoder(
    b: Builder,
    m: Metadata,
    hp: Hyper,
    plan: Sequence[Heads],
    mlp: Mlp,
    *,
    positions: bool = False,
) -> None:
    """Write an encoder whose layers attend and apply an MLP; each sum is normalized.

    `plan` has the heads of each layer; `positions` adds embeddings of the tokens' positions. Where
    the file knows types of tokens, all are of the first; of a pair of texts to give scores of, the
    second text is of the second type.
    """
    x = b.embed("token_embd", hp.n_vocab, hp.n_embd)
    if b.has("token_types.weight"):
        n_types = b.n_rows("token_types.weight")
        separator = m.integer(SEPARATOR, None, least=0, most=hp.n_vocab - 1)
        is_of_pairs = hp.reading is not None and hp.reading.pooling == "rank" and n_types > 1
        if is_of_pairs and separator is not None:
            types = b.embed("token_types", n_types, hp.n_embd, ids="segments", separator=separator)
        else:
            types = b.embed("token_types", n_types, hp.n_embd, ids="row")
        x = b.add(x, types)
    if positions:
        x = b.add(x, b.embed("position_embd", hp.n_ctx_train, hp.n_embd, ids="pos"))
    x = b.layer_norm(x, "token_embd_norm", hp.eps)
    for il, heads in enumerate(plan):
        layer = f"blk.{il}"
        o = gqa_block(b, x, layer, heads)
        if il == hp.n_layers - 1 and selects_rows(hp):
            o, x = b.rows(o), b.rows(x)
        x = b.add(x, b.linear(o, f"{layer}.attn_output", hp.n_embd))
        x = b.layer_norm(x, f"{layer}.attn_output_norm", hp.eps)
        x = b.add(x, mlp(b, x, il))
        x = b.layer_norm(x, f"{layer}.layer_output_norm", hp.eps)
    head(b, x, hp)
