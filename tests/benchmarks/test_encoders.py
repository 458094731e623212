"""benchmarks.encoders writes a file the peer can read, and tells its errors from ours."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("edgeinfer.kernels.native._native", reason="nothing is compiled")

from benchmarks import encoders
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.quant import encode
from edgeinfer.quant.decode import decode
from edgeinfer.quant.formats import FORMATS
from edgeinfer.writer.gguf import TensorPlan, plan, write


def fake_peer(python: str, module: str, job: dict) -> dict:
    """Encode every tensor of the source with NumPy, at twice the scale: errors are large."""
    assert module == "side_peer_encoders"
    with open_gguf(job["source"]) as source:
        rows = {name: decode(tensor) for name, tensor in source.tensors.items()}
    for name in job["formats"]:
        fmt = FORMATS[name]
        plans = [TensorPlan(t, x.shape, fmt) for t, x in rows.items()]
        data = iter([encode.encode(name, 2 * x) for x in rows.values()])
        with Path(job["folder"], f"{name}.gguf").open("wb") as file:
            write(plan([], plans), data, file.write)
    return {"cpu_s": dict.fromkeys(job["formats"], 1.0), "peer_version": "a peer"}


def test_errors_of_both_sides_stand_in_one_table(monkeypatch, capsys) -> None:
    rows = np.random.default_rng(1).standard_normal((16, 64), np.float32)
    monkeypatch.setattr(encoders, "matrices", lambda: {"normal": rows, "heavy tails": rows})
    monkeypatch.setattr(encoders, "FILE_TYPES", {"Q4_0": "Q4_0", "Q8_0": "Q8_0"})
    monkeypatch.setattr(encoders, "run_side", fake_peer)
    monkeypatch.setattr(sys, "argv", ["encoders"])

    encoders.main()

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "peer: a peer"
    assert lines[2] == "| format | normal | heavy tails | ns a value |"
    cells = [cell.split() for cell in lines[4].split("|")[1:4]]
    assert cells[0] == ["Q4_0"] and cells[1] == cells[2]
    assert 0.05 < float(cells[1][0]) < 0.09 and 0.9 < float(cells[1][2]) < 1.1
    assert len(lines) == 6
