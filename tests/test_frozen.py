"""An app frozen by PyInstaller holds all that edgeinfer imports by name, and answers."""

import runpy
import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules

import pytest

import edgeinfer.arch
import edgeinfer.cli.app
from edgeinfer.__pyinstaller import get_hook_dirs

pytest.importorskip("PyInstaller", reason="needs PyInstaller")

REPO_ROOT = Path(__file__).resolve().parent.parent
NOT_NEEDED = ("huggingface_hub", "PIL", "torch", "transformers", "PySide6", "tkinter", "typer")
APP = """
import sys, edgeinfer
from edgeinfer.kernels.backend import choose
with edgeinfer.load(sys.argv[1], n_ctx=128) as model:
    print(model.generate("The capital of France is", temperature=0, max_tokens=2).text)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    print(model.chat(chat, temperature=0, max_tokens=9).text)
print(choose().name)
"""


def test_the_hook_names_what_is_imported_by_name():
    (folder,) = get_hook_dirs()

    hook = runpy.run_path(str(Path(folder) / "hook-edgeinfer.py"))

    found = set(hook["hiddenimports"])
    assert {f"edgeinfer.arch.{m.name}" for m in iter_modules(edgeinfer.arch.__path__)} <= found
    assert {f"edgeinfer.cli.{name}" for name in edgeinfer.cli.app.COMMANDS} <= found
    assert {f"edgeinfer.kernels.{name}.backend" for name in ("native", "reference")} <= found
    assert not any(name.startswith("edgeinfer.kernels.jit") for name in found)


@pytest.mark.timeout(900)
def test_a_frozen_app_answers(tmp_path, smollm2_path):
    (tmp_path / "app.py").write_text(APP)
    (folder,) = get_hook_dirs()
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--onedir", "--log-level=ERROR"]
    command += ["--additional-hooks-dir", folder, "--paths", str(REPO_ROOT), "app.py"]
    for name in NOT_NEEDED:
        command += ["--exclude-module", name]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=800)

    done = subprocess.run(
        [tmp_path / "dist/app/app", smollm2_path],
        cwd=tmp_path,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    completed, chat, backend = done.stdout.splitlines()
    assert completed == " Paris."
    assert "Paris" in chat
    assert backend == "native"
