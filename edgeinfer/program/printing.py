"""Write a program as text, one op a line: results = op operands attributes  # sizes."""

from dataclasses import fields
from typing import TYPE_CHECKING

from edgeinfer.program.op import Op
from edgeinfer.program.states import State

if TYPE_CHECKING:
    from edgeinfer.program.program import Program

LABELS = {
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_output": "o",
    "ffn_gate": "g",
    "ffn_up": "u",
    "ffn_down": "m",
    "output": "logits",
    "attn_q_norm": "q",
    "attn_k_norm": "k",
}
OP_LABELS = {"rms_norm": "h", "layer_norm": "h", "gated": "m", "attention": "o", "route": "r"}
KEEPS_LABEL = ("rope", "scale", "add", "mul", "rows", "act")
COMMENT_COLUMN = 76


def print_program(program: "Program") -> str:
    """Return the text of a program: a head line, its state, then its ops."""
    lines = [
        f"# {program.arch}: {program.n_layers} layers, n_embd {program.n_embd}, "
        f"n_vocab {program.n_vocab}, n_ctx {program.n_ctx} (trained {program.n_ctx_train})"
    ]
    lines += [f"state {_state(state)}" for state in program.states]
    names = [constant.name for constant in program.constants]
    labels: dict[int, str] = {}
    for op in program.ops:
        for value in op.writes():
            labels[value.id] = f"{_label(op, labels)}{value.id}"
        lines.append(_line(op, labels, names))
    lines += [f"output {name} = {labels[value.id]}" for name, value in program.outputs.items()]
    return "\n".join(lines) + "\n"


def _label(op: Op, labels: dict[int, str]) -> str:
    for ref in op.weights():
        parts = ref.name.split(".")
        label = LABELS.get(parts[-2] if len(parts) > 1 else parts[-1])
        if label is not None:
            return label
    reads = op.reads()
    if op.NAME in KEEPS_LABEL and reads:
        return labels[reads[0].id].rstrip("0123456789")
    return OP_LABELS.get(op.NAME, "x")


def _line(op: Op, labels: dict[int, str], constants: list[str]) -> str:
    writes = op.writes()
    head = ", ".join(labels[value.id] for value in writes)
    words = [f"{head} = {op.NAME}" if head else op.NAME]
    words += [labels[value.id] for value in op.reads()]
    words += [ref.name.removesuffix(".weight") for ref in op.weights()]
    words += [f"inv={constants[ref.index]}" for ref in op.constants()]
    words += [f"{name}={_text(item)}" for name, item in op.attributes().items()]
    sizes = ", ".join(f"[{value.rows.value}, {value.width}]" for value in writes)
    line = " ".join(words)
    return f"{line.ljust(COMMENT_COLUMN)} # {sizes}" if sizes else line


def _text(item: object) -> str:
    if isinstance(item, tuple):
        return ",".join(_text(part) for part in item)
    if isinstance(item, bool):
        return str(item).lower()
    return f"{item:.6g}" if isinstance(item, float) else str(item)


def _state(state: State) -> str:
    sizes = {field.name: getattr(state, field.name) for field in fields(state)}
    words = [type(state).__name__.lower(), str(sizes.pop("id"))]
    words += [f"{name}={_text(size)}" for name, size in sizes.items() if size and size != "paged"]
    return " ".join(words)
