"""`edgeinfer plan`: what a model would take here and how fast it could be, before it is loaded."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from edgeinfer.cli.options import LoadFlags, ModelArgument, ModelOption, choose_model, with_flags
from edgeinfer.cli.progress import DownloadProgress, amount

if TYPE_CHECKING:
    from edgeinfer.sizing import Estimate


@with_flags
def plan(
    load_flags: LoadFlags,
    model: ModelArgument = None,
    model_option: ModelOption = None,
    n_sequences: Annotated[
        int, Option("--parallel", "-np", min=1, help="Full contexts at the same time.")
    ] = 1,
    quick: Annotated[bool, Option("--quick", help="Measure nothing.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether a model fits this machine and how fast it could be. Reads no weight.

    The speeds are bounds, from how fast this memory reads and these CPUs multiply, measured in a
    second; `edgeinfer bench` measures the model itself.
    """
    from edgeinfer.loader.resolve import resolve
    from edgeinfer.sizing import estimate

    name = choose_model(model, model_option)
    with DownloadProgress() as progress:
        path = resolve(name, progress=progress)
    found = estimate(
        path,
        n_ctx=load_flags.n_ctx,
        n_sequences=n_sequences,
        n_threads=load_flags.n_threads,
        kv_type=load_flags.kv_type,
        activations="fine" if load_flags.fine else "auto",
        backend=load_flags.backend,
        draft=load_flags.draft,
    )
    speeds = {} if quick else bounds(found, load_flags.n_threads, load_flags.n_threads_batch)
    if as_json:
        print(json.dumps({**asdict(found), "path": str(path), **speeds}, indent=1))
        return
    for title, text in report(found, speeds, name):
        print(f"{title:<8}  {text}")


def bounds(found: "Estimate", n_threads: int | None, n_threads_batch: int | None) -> dict[str, Any]:
    """Measure this machine and return the most tokens a second it allows; {} if it cannot."""
    from edgeinfer.cli.machine import chosen_isa, default_threads
    from edgeinfer.kernels.native import machine

    isa, _ = chosen_isa()
    n_threads = n_threads or default_threads()
    if isa is None or n_threads is None or found.backend != "native":
        return {}
    if found.available_bytes < 4 * machine.READ_BYTES:
        return {}
    n_reading = n_threads_batch or n_threads
    read = machine.read_bandwidth(n_threads)
    speeds = {
        "n_threads": n_threads,
        "n_threads_batch": n_reading,
        "read_bytes_per_s": read,
        "most_prompt_tokens_per_s": machine.int8_peak(isa, n_reading) / max(1, found.token_macs),
    }
    if found.writes:
        speeds["most_tokens_per_s"] = read / found.token_bytes
        speeds["most_tokens_per_s_full"] = read / found.token_bytes_full
    return speeds


def report(found: "Estimate", speeds: dict[str, Any], name: str) -> list[tuple[str, str]]:
    """Return the lines a person reads, each a title and a text."""
    per_token = ", ".join(f"{amount(n, 'B')} in {t}" for t, n in found.kv_bytes_per_token.items())
    contexts = f"{found.n_ctx:,} tokens"
    if found.n_sequences > 1:
        contexts = f"{found.n_sequences} times {contexts}"
    rows = [
        ("model", f"{found.path.name}: {found.arch}, {found.n_params / 1e6:,.0f} M parameters"),
        ("weights", amount(found.weights_bytes, "B")),
        ("kv", f"{amount(found.kv_bytes, 'B')} for {contexts} in {found.kv_type}"),
        ("", f"a token takes {per_token}"),
    ]
    if found.state_bytes:
        rows.append(("state", amount(found.state_bytes, "B")))
    rows += [
        ("scratch", amount(found.scratch_bytes, "B")),
        *([("draft", amount(found.draft_bytes, "B"))] if found.draft_bytes else []),
        ("all", f"{amount(found.n_bytes, 'B')}, besides Python and the vocabulary"),
        ("verdict", f"{found.verdict}: {found.reason}"),
    ]
    if found.verdict == "cannot":
        return rows
    if speeds:
        rows += _speed_rows(found, speeds)
    only_reads = "" if found.writes else " -n 0"
    rows.append(("", f"the real speed: edgeinfer bench {name}{only_reads}"))
    return rows


def _speed_rows(found: "Estimate", speeds: dict[str, Any]) -> list[tuple[str, str]]:
    if not found.writes:
        most = f"{speeds['most_prompt_tokens_per_s']:,.0f}"
        return [("speed", f"reads at most {most} tokens a second, and writes none")]
    read = f"{speeds['read_bytes_per_s'] / 1e9:.1f} GB/s to {speeds['n_threads']} threads"
    if found.verdict == "slow":
        return [("speed", f"that of the disk; from memory ({read}) it would be:"), *_rates(speeds)]
    return [("speed", f"the memory gives {read}, which allows:"), *_rates(speeds)]


def _rates(speeds: dict[str, Any]) -> list[tuple[str, str]]:
    first, full = speeds["most_tokens_per_s"], speeds["most_tokens_per_s_full"]
    prompt = speeds["most_prompt_tokens_per_s"]
    return [
        ("", f"at most {first:,.1f} tokens a second, {full:,.1f} when the context is full"),
        ("", f"at most {prompt:,.0f} tokens of a prompt a second"),
    ]
