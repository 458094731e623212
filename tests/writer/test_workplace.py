"""Files get their names whole or not at all, and nothing is left where nothing was finished."""

import fcntl
import os
import subprocess
import sys

import pytest

from edgeinfer.errors import InvalidParameterError, ResourceError
from edgeinfer.writer.workplace import Targets, check_room, check_targets, workplace


@pytest.fixture
def targets(tmp_path):
    return Targets(tmp_path, ("out.gguf",))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_finished_file_replaces_the_one_that_was_there(targets, tmp_path):
    targets.first.write_bytes(b"before")
    with workplace(targets) as place:
        with place.file("out.gguf") as part:
            part.write(memoryview(b"af"))
            part.write(memoryview(b"ter"))
        part.verify()
        assert targets.first.read_bytes() == b"before"
        place.publish()
    assert targets.first.read_bytes() == b"after"
    assert names(tmp_path) == ["out.gguf"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_interruption_leaves_what_was_there(targets, tmp_path, error):
    targets.first.write_bytes(b"before")
    with pytest.raises(error), workplace(targets) as place, place.file("out.gguf") as part:
        part.write(memoryview(b"half"))
        raise error
    assert names(tmp_path) == ["out.gguf"]
    assert targets.first.read_bytes() == b"before"


def test_a_file_that_reads_back_otherwise_is_refused(targets):
    with pytest.raises(ResourceError, match="reads back as 5 bytes"), workplace(targets) as place:
        with place.file("out.gguf") as part:
            part.write(memoryview(b"right"))
        part.path.write_bytes(b"wrong")
        part.verify()
    assert not targets.first.exists()


def test_what_a_killed_process_left_is_removed(targets, tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / f"out.gguf.part-{dead.pid}"
    left.mkdir()
    (left / "out.gguf").write_bytes(b"half")
    for other in ("out.gguf.part-x", "out.gguf.part-", "other.gguf.part-" + str(dead.pid)):
        (tmp_path / other).mkdir()
    (tmp_path / f"out.gguf.part-{dead.pid}-9").write_bytes(b"a file, not ours")
    with workplace(targets):
        assert not left.exists()
    assert len(names(tmp_path)) == 4


def test_the_folder_of_a_living_process_stays(targets, tmp_path):
    left = tmp_path / f"out.gguf.part-{os.getppid()}"
    left.mkdir()
    with workplace(targets):
        pass
    assert left.exists()


def test_a_folder_that_is_locked_stays(targets, tmp_path):
    """Process ids repeat, above all across containers that share a disk."""
    left = tmp_path / "out.gguf.part-4194303"
    left.mkdir()
    descriptor = os.open(left, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with workplace(targets):
        assert left.exists()
    os.close(descriptor)
    with workplace(targets):
        assert not left.exists()


def test_two_writers_of_one_name_do_not_meet(targets):
    with workplace(targets) as one, workplace(targets) as two:
        assert one.folder != two.folder
        for place, text in ((one, b"one"), (two, b"two")):
            with place.file("out.gguf") as part:
                part.write(memoryview(text))
        one.publish()
        two.publish()
    assert targets.first.read_bytes() == b"two"


@pytest.mark.parametrize("can_link", [True, False])
def test_what_appeared_meanwhile_is_replaced_only_with_leave(
    targets, tmp_path, monkeypatch, can_link
):
    if not can_link:
        monkeypatch.setattr(os, "link", lambda *_: os.stat(tmp_path / "none"))
    with workplace(targets) as one, workplace(targets) as two:
        for place in (one, two):
            with place.file("out.gguf") as part:
                part.write(memoryview(str(place.folder).encode()))
        one.publish(overwrite=False)
        with pytest.raises(InvalidParameterError, match=r"out.gguf: appeared while .*--force"):
            two.publish(overwrite=False)
        assert targets.first.read_bytes() == str(one.folder).encode()
    assert names(tmp_path) == ["out.gguf"]


def test_of_two_sets_at_once_one_appears_whole(tmp_path):
    sets = [Targets(tmp_path, ("a", "b", "c")), Targets(tmp_path, ("x", "b", "y"))]
    with workplace(sets[0]) as one, workplace(sets[1]) as two:
        for place in (one, two):
            for name in place.targets.names:
                with place.file(name) as part:
                    part.write(memoryview(str(place.folder).encode()))
        one.publish()
        with pytest.raises(InvalidParameterError, match="b: appeared while"):
            two.publish()
    assert names(tmp_path) == ["a", "b", "c"]
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {str(one.folder).encode()}


def test_a_set_gets_its_first_file_last(tmp_path, monkeypatch):
    order = []
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append(os.path.basename(b)), real(a, b)))
    targets = Targets(tmp_path, ("a", "b", "c"))
    with workplace(targets) as place:
        for name in targets.names:
            with place.file(name):
                pass
        place.publish()
    assert order == ["c", "b", "a"]
    assert names(tmp_path) == ["a", "b", "c"]


def test_a_folder_without_permission_is_told(targets, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)
    with (
        pytest.raises(ResourceError, match="cannot be written: Permission denied"),
        workplace(targets),
    ):
        pass


def test_too_little_room_is_told_before(targets):
    with pytest.raises(ResourceError, match="no space left"):
        check_room(targets, 1 << 60)
    check_room(targets, 0)


@pytest.mark.parametrize("link", [os.symlink, os.link, None])
def test_a_target_that_is_a_source_is_refused(tmp_path, link):
    source = tmp_path / "in.gguf"
    source.write_bytes(b"model")
    name = "in.gguf" if link is None else "out.gguf"
    if link is not None:
        link(source, tmp_path / name)
    with pytest.raises(InvalidParameterError, match="the output is the input"):
        check_targets(Targets(tmp_path, (name,)), [source], overwrite=True)


def test_what_is_there_is_replaced_only_if_asked(tmp_path):
    source = tmp_path / "in.gguf"
    source.write_bytes(b"model")
    (tmp_path / "out.gguf").write_bytes(b"old")
    one, two = Targets(tmp_path, ("out.gguf",)), Targets(tmp_path, ("new.gguf", "out.gguf"))
    with pytest.raises(InvalidParameterError, match=r"exists; .*--force"):
        check_targets(one, [source], overwrite=False)
    check_targets(one, [source], overwrite=True)
    with pytest.raises(InvalidParameterError, match="remove the set first"):
        check_targets(two, [source], overwrite=True)
    (tmp_path / "out.gguf").unlink()
    (tmp_path / "out.gguf").mkdir()
    with pytest.raises(InvalidParameterError, match="not a regular file"):
        check_targets(one, [source], overwrite=True)
    with pytest.raises(InvalidParameterError, match="no such folder"):
        check_targets(Targets(tmp_path / "none", ("a",)), [source], overwrite=False)
