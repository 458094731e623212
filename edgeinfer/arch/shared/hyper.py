"""Read the hyper-parameters every architecture has, each checked where it is read.

In goes metadata and tensor shapes, out comes `Hyper`; every error names the key at fault.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from edgeinfer.arch.shared.pooling import CAUSAL, Reading, read_pooling
from edgeinfer.errors import MissingTensorError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.ops_rowwise import PoolKind
from edgeinfer.program.program import Pooling
from edgeinfer.quant.tensor import Tensor

# Far above every known model; low enough that sizes stay below 2^63 and building below a second.
MAX_LAYERS = 1024
MAX_HEADS = 1 << 14
MAX_HEAD_DIM = 1 << 14
MAX_WIDTH = 1 << 22
MAX_CTX = (1 << 31) - 1
RMS_EPS = ".attention.layer_norm_rms_epsilon"
LAYER_EPS = ".attention.layer_norm_epsilon"


@dataclass(frozen=True, slots=True)
class Hyper:
    """Sizes of a model: counts of layers and heads, widths, lengths in tokens.

    n_heads, n_kv_heads and n_ff hold one number for each layer; a layer of a hybrid that does not
    attend has 0 KV heads. `n_ctx` is the longest sequence to
    serve, `n_ctx_train` the one the model was trained for. `reading` says what a model gives that
    writes no text, `causal` whether its tokens see those before them only.
    """

    n_layers: int
    n_embd: int
    n_vocab: int
    n_ctx: int
    n_ctx_train: int
    n_heads: tuple[int, ...]
    n_kv_heads: tuple[int, ...]
    n_ff: tuple[int, ...]
    key_dim: int
    value_dim: int
    eps: float
    causal: bool = True
    reading: Reading | None = None


def read_hyper(
    m: Metadata,
    tensors: Mapping[str, Tensor],
    n_ctx: int,
    *,
    is_hybrid: bool = False,
    n_ff: int | None = None,
    least_ff: int = 1,
    eps: str = RMS_EPS,
    is_encoder: bool = False,
    scores_of: PoolKind | None = None,
) -> Hyper:
    """Read the base keys of a transformer with attention in every layer, or in some.

    `eps` is the key of what its norms add. `n_ff` is the width of the MLP where the file, of
    experts alone, gives none; `least_ff` is 0 where some layers have no MLP. An encoder looks ahead
    and gives rows of tokens unless the file says otherwise; `scores_of` is as in `read_pooling`.
    Raises ModelFormatError naming the key that is missing or out of range.
    """
    n_layers = m.integer(".block_count", least=1, most=MAX_LAYERS)
    n_embd = m.integer(".embedding_length", least=1, most=MAX_WIDTH)
    n_heads = m.per_layer(".attention.head_count", n_layers, least=1, most=MAX_HEADS)
    n_kv_heads = _kv_heads(m, n_layers, n_heads, least=0 if is_hybrid else 1)
    key_dim = _head_dim(m, ".attention.key_length", n_embd, n_heads)
    value_dim = _head_dim(m, ".attention.value_length", n_embd, n_heads)
    default = () if n_ff is None else ((n_ff,) * n_layers,)
    causal = m.flag(CAUSAL, not is_encoder)
    by_default: Pooling | None = "none" if is_encoder else None
    return Hyper(
        n_layers=n_layers,
        n_embd=n_embd,
        n_vocab=_vocab(m, tensors),
        n_ctx=n_ctx,
        n_ctx_train=m.integer(".context_length", least=1, most=MAX_CTX),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        n_ff=m.per_layer(
            ".feed_forward_length", n_layers, *default, least=least_ff, most=MAX_WIDTH
        ),
        key_dim=key_dim,
        value_dim=value_dim,
        eps=m.number(eps, above=0.0, most=1.0),
        causal=causal,
        reading=read_pooling(m, causal=causal, default=by_default, scores_of=scores_of),
    )


def _kv_heads(
    m: Metadata, n_layers: int, n_heads: tuple[int, ...], *, least: int
) -> tuple[int, ...]:
    key = ".attention.head_count_kv"
    found = m.per_layer(key, n_layers, n_heads, least=least, most=MAX_HEADS)
    for n_kv, n in zip(found, n_heads, strict=True):
        if n_kv and n % n_kv:
            raise m.error(key, f"found {n_kv} (need a divisor of the {n} attention heads)")
    return found


def _head_dim(m: Metadata, key: str, n_embd: int, n_heads: tuple[int, ...]) -> int:
    found = m.integer(key, None, least=1, most=MAX_HEAD_DIM)
    if found is not None:
        return found
    dim, rest = divmod(n_embd, n_heads[0])
    if rest or not 1 <= dim <= MAX_HEAD_DIM or len(set(n_heads)) > 1:
        raise m.error(key, f"missing (need it: {n_embd} columns do not make {n_heads[0]} heads)")
    return dim


def _vocab(m: Metadata, tensors: Mapping[str, Tensor]) -> int:
    # The rows of the table decide: they may exceed the tokenizer's list (padding), and the key
    # `vocab_size` differs from both in files of the wild.
    table = tensors.get("token_embd.weight")
    if table is None:
        raise MissingTensorError(f"{m.where}: tensor 'token_embd.weight' is missing")
    return table.shape[0]


def layer_flags(
    m: Metadata, key: str, n_layers: int, *, period: int, is_last_global: bool = True
) -> tuple[bool, ...]:
    """Read which layers are windowed: an array of bools, or a period p (every p-th is not).

    The default is `period`; a period of 0 or 1 windows no layer. `is_last_global`: of a period it
    is the last layer that is not windowed, else the first.
    """
    found = m.get(m.full_key(key))
    if isinstance(found, bool) or not isinstance(found, int | None):
        return tuple(bool(flag) for flag in m.per_layer(key, n_layers, least=0, most=1))
    p = m.integer(key, period, least=0)
    whole = p - 1 if is_last_global else 0
    return tuple(p > 1 and il % p != whole for il in range(n_layers))
