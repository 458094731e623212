"""Read the keys of a mixture of experts."""

from collections.abc import Mapping, Sequence

from edgeinfer.arch.shared.blocks import Experts
from edgeinfer.arch.shared.hyper import MAX_WIDTH, Hyper
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.ops_routing import Score
from edgeinfer.quant.tensor import Tensor

MAX_EXPERTS = 4096
# What llama.cpp's key `expert_gating_func` counts as.
GATINGS: dict[int, Score] = {1: "softmax", 2: "sigmoid", 3: "softmax_topk"}


def read_experts(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper, *scores: Score) -> Experts:
    """Return the experts of a model that has some.

    `scores` are the ways to choose experts that the family has, what a file without the key means
    first; softmax alone where none is given. Raises ModelFormatError naming the key at fault,
    UnsupportedModelError for a file with one tensor an expert.
    """
    n_experts = m.integer(".expert_count", least=1, most=MAX_EXPERTS)
    if "blk.0.ffn_gate.0.weight" in tensors:
        raise UnsupportedModelError(
            f"{m.where}: tensor 'blk.0.ffn_gate.0.weight': found one tensor an expert "
            "(need blk.0.ffn_gate_exps.weight with all): convert the model again"
        )
    return Experts(
        n_experts=n_experts,
        n_used=m.integer(".expert_used_count", least=1, most=n_experts),
        n_ff=m.integer(".expert_feed_forward_length", hp.n_ff[0], least=1, most=MAX_WIDTH),
        by=m.number(".expert_weights_scale", 0.0, least=0.0) or 1.0,
        norm=m.flag(".expert_weights_norm", True),
        score=_score(m, scores or ("softmax",)),
    )


def expert_width(m: Metadata) -> int:
    """Return the width of the experts of a family that has no other MLP."""
    return m.integer(".expert_feed_forward_length", least=1, most=MAX_WIDTH)


def _score(m: Metadata, scores: Sequence[Score]) -> Score:
    numbers = {score: number for number, score in GATINGS.items()}
    key = ".expert_gating_func"
    found = m.integer(key, numbers[scores[0]])
    if GATINGS.get(found) not in scores:
        need = " or ".join(f"{numbers[score]}, {score}" for score in scores)
        raise m.error(key, f"found {found} (need {need})")
    return GATINGS[found]
