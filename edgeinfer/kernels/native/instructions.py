"""Name the flat ops the C executor runs, over numbered values, before and after placement.

One `Instruction` becomes one `ei_op` (csrc/edgeinfer.h says what each kind computes). Knows no
program: `lower.py` makes them from one, `place.py` gives them storage.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import get_args

from edgeinfer.program.ops import Route
from edgeinfer.program.ops_rowwise import FUNCTIONS, EmbedIds, PoolKind
from edgeinfer.program.states import Recurrent
from edgeinfer.program.values import Rows

BLOCK = 32  # elements that share activation scales; a result of whole blocks can be left quantized
ONES = ""  # names the vector of a norm without weight


class Kind(IntEnum):
    """The EI_OP_* of csrc/edgeinfer.h; a test holds them equal."""

    EMBED = 0
    GATHER = 1
    NORM = 2
    MATMUL = 3
    GATED = 4
    HEADS = 5
    ATTENTION = 6
    ACT = 7
    GATE = 8
    ADD = 9
    MULTIPLY = 10
    SCALE = 11
    SPLIT = 12
    ROUTE = 13
    EXPERT_ACTS = 14
    EXPERTS_GATED = 15
    EXPERTS = 16
    COMBINE = 17
    OBSERVE = 18
    CONV = 19
    SCAN = 20
    DELTA = 21
    LAYER_NORM = 22
    POOL = 23
    SOFTMAX = 24
    CONCAT = 25


# Numbered as in csrc/edgeinfer.h.
IDS: tuple[EmbedIds, ...] = get_args(EmbedIds)
POOLINGS: tuple[PoolKind, ...] = get_args(PoolKind)

# Numbered as in csrc/kernels.h.
GATES = (*FUNCTIONS, "swiglu_oai")


@dataclass(eq=False, slots=True)
class Buffer:
    """A float32 matrix of the step; `number` is its storage, shared where lives do not overlap."""

    width: int
    rows: Rows
    number: int = -1


@dataclass(eq=False, slots=True)
class Acts:
    """Quantized (integers) or tiled float32 (floats) activations for matmuls; fine: of 15 bits.

    `slots` is how many of them each row of the step has: one, or one for each chosen expert.
    """

    width: int
    rows: Rows
    slots: int = 1
    integers: bool = False
    fine: bool = False
    floats: bool = False
    number: int = -1


@dataclass(frozen=True, slots=True)
class Rotation:
    """One RoPE table: a constant of the program, and the factor on its cosines and sines."""

    constant: int
    mscale: float


@dataclass(eq=False, slots=True)
class Routing:
    """One choice of experts; the C executor keeps which expert got which rows.

    Without a route every row gets all of them, as heads with matrices of their own are run.
    """

    n_experts: int
    n_used: int
    route: Route | None = None


@dataclass(eq=False, slots=True)
class Instruction:
    """One op; the fields are those of `ei_op`. Weights and vectors are named by tensor.

    `slopes` is a constant of the program, and the vector after those; so is `temperature`, (beta,
    length), as a vector of a factor for every `length` positions. `observed` names the tensor whose
    inputs an OBSERVE sums.
    """

    kind: Kind
    rows: Rows
    inputs: tuple[Buffer | None, ...] = ()
    outputs: tuple[Buffer | None, ...] = ()
    acts_in: Acts | None = None
    acts_out: Acts | None = None
    gathered: Acts | None = None
    routing: Routing | None = None
    weights: tuple[str, ...] = ()
    vectors: tuple[str | None, ...] = ()
    slopes: int | None = None
    temperature: tuple[float, int] | None = None
    observed: str | None = None
    rope: Rotation | None = None
    kv: int | None = None
    state: Recurrent | None = None
    heads: tuple[int, ...] = ()
    dims: tuple[int, ...] = ()
    scalars: dict[str, float | int] = field(default_factory=dict)

    def reads(self) -> Iterator[Buffer | Acts]:
        """Yield what the op reads."""
        yield from (b for b in self.inputs if b is not None)
        if self.acts_in is not None:
            yield self.acts_in

    def writes(self) -> Iterator[Buffer | Acts]:
        """Yield what the op writes."""
        yield from (b for b in self.outputs if b is not None)
        if self.acts_out is not None:
            yield self.acts_out
        if self.gathered is not None:
            yield self.gathered


@dataclass(frozen=True, slots=True)
class Lowered:
    """A whole step: its instructions and the buffer that ends as the logits.

    `hidden`, where the program names any, is the buffer of the rows that the head reads, and
    `n_body` counts the instructions up to the one that makes it.
    """

    instructions: list[Instruction]
    logits: Buffer
    hidden: Buffer | None = None
    n_body: int = 0
