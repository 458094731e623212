"""The memory a process may take is the least of what the machine and its cgroups leave."""

from pathlib import Path

import psutil
import pytest

from edgeinfer.kernels import memory
from edgeinfer.kernels.memory import memory_bytes

MIB = 1 << 20


def write_group(folder: Path, **values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / f"memory.{name}").write_text(f"{value}\n")


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """The mount of the cgroups; the process is in /app of it."""
    (tmp_path / "own").write_text("5:cpuset:/\n4:memory:/app\n0::/app\n")
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "mount")
    monkeypatch.setattr(memory, "OWN_GROUPS", tmp_path / "own")
    return tmp_path / "mount"


def test_without_cgroups_the_machine_decides(groups):
    available, total = memory_bytes()

    assert total == psutil.virtual_memory().total
    assert 0 < available <= total


def test_a_limit_leaves_what_is_not_used_and_what_can_be_reclaimed(groups):
    stat = f"anon 1\ninactive_file {2 * MIB}\nactive_file 5"
    write_group(groups / "app", max=20 * MIB, current=12 * MIB, stat=stat)

    assert memory_bytes() == (10 * MIB, 20 * MIB)


def test_the_tightest_group_above_decides(groups):
    write_group(groups / "app", max="max", current=MIB)
    write_group(groups, max=8 * MIB, current=7 * MIB)

    assert memory_bytes() == (MIB, 8 * MIB)


def test_groups_of_version_1_count(groups):
    stat = f"inactive_file 0\ntotal_inactive_file {MIB}"
    write_group(groups / "memory/app", limit_in_bytes=9 * MIB, usage_in_bytes=4 * MIB, stat=stat)
    write_group(groups / "memory", limit_in_bytes=2**63 - 4096, usage_in_bytes=MIB)

    assert memory_bytes() == (6 * MIB, 9 * MIB)


def test_a_group_over_its_limit_leaves_nothing(groups):
    write_group(groups / "app", max=MIB, current=2 * MIB)

    assert memory_bytes() == (0, MIB)


@pytest.mark.parametrize("text", ["", "nonsense", "0", "::"])
def test_a_file_that_makes_no_sense_is_no_limit(groups, text):
    memory.OWN_GROUPS.write_text(text)

    assert memory_bytes()[1] == psutil.virtual_memory().total
