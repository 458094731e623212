"""Check that ops fit together and that a file has the tensors they name.

Reports what it finds as typed errors; reads shapes and formats, never a weight.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from edgeinfer.errors import InvalidParameterError, MissingTensorError, ModelFormatError
from edgeinfer.program.op import Op
from edgeinfer.program.ops import (
    STATE_WRITERS,
    Attention,
    Conv1d,
    DeltaNet,
    KvStore,
    SelectRows,
    SsmScan,
)
from edgeinfer.program.states import Conv, Delta, Kv, Ssm, State
from edgeinfer.program.values import Rows, Use, Value
from edgeinfer.quant.tensor import Tensor

S = TypeVar("S", Kv, Conv, Ssm, Delta)
EXACT_FORMATS = ("F32", "F16", "BF16")
MAX_LISTED = 20


def _fail(what: str) -> ModelFormatError:
    return ModelFormatError(f"program: {what}")


def check_structure(
    ops: Sequence[Op],
    states: Sequence[State],
    outputs: Mapping[str, Value],
    constants: Sequence[np.ndarray],
) -> None:
    """Raise ModelFormatError unless the ops form one valid step.

    Every value is written once, before it is read, and keeps its width. Constants exist with
    their length. State is declared with the sizes its ops use. Each KV is written by one
    `kv_store`, before any attention that names it, and only by ops that see all rows of the step.
    """
    _check_values(ops, outputs)
    for op in ops:
        for ref in op.constants():
            if not 0 <= ref.index < len(constants) or constants[ref.index].shape != (ref.length,):
                raise _fail(f"op {op.NAME}: constant {ref.index} of {ref.length}: no such constant")
    _check_states(ops, states)
    _check_selection(ops)


def check_length(n_ctx: int, n_positions: int | None) -> None:
    """Raise InvalidParameterError unless every position of a sequence has a row of its own."""
    if n_positions is not None and n_ctx > n_positions:
        raise InvalidParameterError(
            f"n_ctx: found {n_ctx} (need at most {n_positions}): this model has learned a vector "
            "for each position, and none for later ones"
        )


def _check_values(ops: Sequence[Op], outputs: Mapping[str, Value]) -> None:
    known: dict[int, Value] = {}
    for op in ops:
        for value in op.reads():
            if known.get(value.id) != value:
                raise _fail(f"op {op.NAME}: reads value {value.id}, which no earlier op wrote")
        for value in op.writes():
            if value.id in known:
                raise _fail(f"op {op.NAME}: value {value.id} is written twice")
            known[value.id] = value
    if not outputs:
        raise _fail("no output")
    for name, value in outputs.items():
        if known.get(value.id) != value:
            raise _fail(f"output {name}: no op writes value {value.id}")


def _check_selection(ops: Sequence[Op]) -> None:
    writers = [i for i, op in enumerate(ops) if isinstance(op, STATE_WRITERS)]
    last = writers[-1] if writers else -1
    for i, op in enumerate(ops):
        if isinstance(op, SelectRows) and i < last:
            raise _fail("op rows: stands before the last op that writes state")
        if i > last:
            continue
        if isinstance(op, STATE_WRITERS) and any(v.rows is not Rows.TOKENS for v in op.reads()):
            raise _fail(f"op {op.NAME}: does not see all rows of the step")


def _check_states(ops: Sequence[Op], states: Sequence[State]) -> None:
    kvs = _by_id(states, Kv)
    convs, ssms, deltas = _by_id(states, Conv), _by_id(states, Ssm), _by_id(states, Delta)
    stored: set[int] = set()
    used: set[tuple[str, int]] = set()
    for op in ops:
        if isinstance(op, KvStore):
            _check_store(op, _declared(op, kvs, op.kv), stored)
        elif isinstance(op, Attention):
            _check_attention(op, _declared(op, kvs, op.kv), stored)
        elif isinstance(op, Conv1d) and op.mask == "causal":
            n_channels, n_taps = op.weight.shape
            need = Conv(op.conv, n_channels, n_taps - 1)
            _check_own(op, _declared(op, convs, op.conv), need, used)
        elif isinstance(op, SsmScan):
            need_ssm = Ssm(op.ssm, op.heads, op.x.width // op.heads, op.state)
            _check_own(op, _declared(op, ssms, op.ssm), need_ssm, used)
        elif isinstance(op, DeltaNet):
            key_dim, value_dim = op.k.width // op.k_heads, op.v.width // op.v_heads
            need_delta = Delta(op.delta, op.v_heads, key_dim, value_dim)
            _check_own(op, _declared(op, deltas, op.delta), need_delta, used)


def _by_id(states: Sequence[State], kind: type[S]) -> dict[int, S]:
    found: dict[int, S] = {}
    for state in states:
        if isinstance(state, kind):
            if state.id in found:
                raise _fail(f"{kind.__name__.lower()} {state.id} is declared twice")
            found[state.id] = state
    return found


def _declared(op: Op, states: Mapping[int, S], id: int) -> S:
    if id not in states:
        raise _fail(f"op {op.NAME}: state {id} is not declared")
    return states[id]


def _check_own(op: Op, found: State, need: State, used: set[tuple[str, int]]) -> None:
    if found != need:
        raise _fail(f"op {op.NAME}: state is declared as {found} (need {need})")
    if (op.NAME, need.id) in used:
        raise _fail(f"op {op.NAME}: state {need.id} is written twice")
    used.add((op.NAME, need.id))


def _check_store(op: KvStore, kv: Kv, stored: set[int]) -> None:
    if kv.id in stored:
        raise _fail(f"op kv_store: kv {kv.id} is written twice")
    stored.add(kv.id)
    op.need_width("k", op.k, kv.n_kv_heads * kv.key_dim)
    op.need((op.v is None) == kv.v_is_prefix, "v", op.v, f"as kv {kv.id} declares")
    if op.v is not None:
        op.need_width("v", op.v, kv.n_kv_heads * kv.value_dim)


def _check_attention(op: Attention, kv: Kv, stored: set[int]) -> None:
    if kv.id not in stored:
        raise _fail(f"op attention: kv {kv.id} is read before a kv_store wrote it")
    need = f"a multiple of the KV heads {kv.n_kv_heads}"
    op.need(op.heads % kv.n_kv_heads == 0, "heads", op.heads, need)
    op.need_width("q", op.q, op.heads * kv.key_dim)
    op.need_width("out", op.out, op.heads * kv.value_dim)
    op.need(op.window == kv.window, "window", op.window, f"{kv.window}, as kv {kv.id} declares")


def check_tensors(
    ops: Sequence[Op], tensors: Mapping[str, Tensor], *, where: str, arch: str
) -> None:
    """Raise MissingTensorError naming every tensor the ops need and the file lacks or misshapes."""
    faults = list(dict.fromkeys(_faults(ops, tensors)))
    if not faults:
        return
    listed = faults[:MAX_LISTED]
    if len(faults) > len(listed):
        listed.append(f"and {len(faults) - len(listed)} more")
    raise MissingTensorError(
        f"{where}: {len(faults)} tensors of architecture '{arch}' are missing or wrong:\n  "
        + "\n  ".join(listed)
        + "\nThe file is incomplete or was converted wrongly: fetch or convert it again."
    )


def _faults(ops: Sequence[Op], tensors: Mapping[str, Tensor]) -> Iterator[str]:
    for op in ops:
        for ref in op.weights():
            tensor = tensors.get(ref.name)
            if tensor is None:
                yield f"'{ref.name}' is missing (need {ref.shape})"
            elif ref.shape not in (tensor.shape, (1, *tensor.shape)):  # a row may be a vector
                yield f"'{ref.name}' is {tensor.shape} (need {ref.shape})"
            elif ref.use is Use.VECTOR and tensor.format.name not in EXACT_FORMATS:
                allowed = ", ".join(EXACT_FORMATS)
                yield f"'{ref.name}' is {tensor.format.name} (need one of {allowed})"
