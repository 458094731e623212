"""Write encoders as BERT has them: sums normalized after each part, and what they are read for."""

from collections.abc import Sequence

from edgeinfer.arch.shared.blocks import Heads, gqa_block, head, selects_rows
from edgeinfer.arch.shared.decoder import Mlp
from edgeinfer.arch.shared.hyper import Hyper
from edgeinfer.program.builder import Builder


def encoder(
    b: Builder, hp: Hyper, plan: Sequence[Heads], mlp: Mlp, *, positions: bool = False
) -> None:
    """Write an encoder whose layers attend and apply an MLP; each sum is normalized.

    `plan` has the heads of each layer; `positions` adds embeddings of the tokens' positions. All
    tokens are of the first type, where the file knows types.
    """
    x = b.embed("token_embd", hp.n_vocab, hp.n_embd)
    if b.has("token_types.weight"):
        n_types = b.tensors["token_types.weight"].shape[0]
        x = b.add(x, b.embed("token_types", n_types, hp.n_embd, ids="row"))
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
