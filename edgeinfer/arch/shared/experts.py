"""Read the keys of a mixture of experts."""

from collections.abc import Mapping

from edgeinfer.arch.shared.blocks import Experts
from edgeinfer.arch.shared.hyper import MAX_WIDTH, Hyper
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.quant.tensor import Tensor

MAX_EXPERTS = 4096


def read_experts(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper) -> Experts:
    """Return the experts of a model that has some, chosen by softmax.

    Raises ModelFormatError naming the key at fault, UnsupportedModelError for a file with one
    tensor an expert.
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
    )
