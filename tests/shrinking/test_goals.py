"""Goals that are measured: what a file is said to lose is what it loses, and it is small."""

import hashlib

import pytest

from edgeinfer import quantize
from edgeinfer.errors import CancelledError, InvalidParameterError
from edgeinfer.evaluating import divergence
from edgeinfer.evaluating.window_model import WindowModel
from edgeinfer.loader.gguf import open_gguf
from tests.shrinking.spoken import TEXT, write_spoken

pytest.importorskip("edgeinfer.kernels.native._native")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_spoken(tmp_path_factory.mktemp("spoken") / "in.gguf")


@pytest.fixture
def target(tmp_path):
    return tmp_path / "out.gguf"


def kld_of(source, target):
    with WindowModel(source) as reference, WindowModel(target) as model:
        return divergence(reference, model, TEXT).kld.value


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_report_is_what_the_written_file_loses(source, target, tmp_path):
    report = quantize(source, target, "Q4_K_M", report=True, text=TEXT, dataset="sea.txt")
    assert names(tmp_path) == ["out.gguf"]
    assert report.divergence.kld.value == pytest.approx(kld_of(source, target), rel=1e-3)
    with open_gguf(target) as file:
        card = {key: file.metadata[f"edgeinfer.report.{key}"] for key in ("kld", "ppl", "dataset")}
        assert card["kld"] == pytest.approx(report.divergence.kld.value, rel=1e-6)
        assert card["ppl"] == pytest.approx(report.divergence.ppl.value, rel=1e-6)
        assert card["dataset"] == "sea.txt"
        sha256 = hashlib.sha256(TEXT.encode()).hexdigest()
        assert file.metadata["edgeinfer.report.text_sha256"] == sha256
        assert file.metadata["edgeinfer.report.recipe"] == "Q4_K_M"
        assert report.n_bytes == file.n_bytes


def test_a_report_changes_no_weight_and_is_not_copied_on(source, target, tmp_path):
    report = quantize(source, target, "Q8_0", report=True, text=TEXT, split_max_bytes=150_000)
    assert len(report.files) > 1
    quantize(source, tmp_path / "plain.gguf", "Q8_0")
    quantize(report.files[0], tmp_path / "again.gguf", "Q8_0", allow_requantize=True)
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "plain.gguf").read_bytes()


def test_the_smallest_file_within_a_divergence_is_found_and_measured(source, target, tmp_path):
    by_recipe = tmp_path / "recipe.gguf"
    quantize(source, by_recipe, "Q4_K_M")
    allowed = kld_of(source, by_recipe)
    report = quantize(source, target, max_kld=allowed, text=TEXT)
    found = kld_of(source, target)
    assert found <= allowed * 1.001
    assert report.divergence.kld.value == pytest.approx(found, rel=1e-3)
    assert report.recipe == f"kld {allowed:g}"
    assert report.predicted_kld > 0
    assert target.stat().st_size == report.n_bytes < by_recipe.stat().st_size


def test_a_dry_run_predicts_and_leaves_nothing(source, target, tmp_path):
    report = quantize(source, target, max_kld=0.01, text=TEXT, dry_run=True)
    assert 0 < report.predicted_kld <= 0.01
    assert report.divergence is None
    assert names(tmp_path) == []


def test_a_divergence_no_format_keeps_is_refused_with_what_was_found(source, target, tmp_path):
    with pytest.raises(
        InvalidParameterError, match=r"Q8_0, are .* from the source .allowed: 1e-09"
    ):
        quantize(source, target, max_kld=1e-9, text=TEXT)
    assert names(tmp_path) == []


def test_a_size_with_a_text_is_kept_with_its_report(source, target):
    allowed = int(source.stat().st_size * 0.2)
    report = quantize(source, target, max_bytes=allowed, text=TEXT, report=True)
    assert 0.9 * allowed < target.stat().st_size <= allowed
    assert report.divergence.kld.value == pytest.approx(kld_of(source, target), rel=1e-3)
    assert 0.2 < report.predicted_kld / report.divergence.kld.value < 5


@pytest.mark.parametrize("stage", ["reading the source", "trying matrices", "measuring"])
def test_what_stops_the_work_leaves_what_was_there(source, target, tmp_path, stage):
    target.write_bytes(b"old")

    def stop(now, n_done, n_total):
        if now == stage:
            raise CancelledError("stop")

    with pytest.raises(CancelledError):
        quantize(source, target, max_kld=0.1, text=TEXT, overwrite=True, progress=stop)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["out.gguf"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "Q4_0", "text": TEXT}, "text: found one"),
        ({"recipe": "Q4_0", "chunks": 1}, "text: found one, or chunks"),
        ({"max_kld": 0.0}, "max_kld: found 0.0"),
        ({"max_kld": float("nan")}, "max_kld: found nan"),
        ({"max_kld": 0.1, "max_bytes": 1 << 20}, "found max_bytes and max_kld"),
        ({"max_kld": 0.1, "keep_split": True}, "max_kld and a split set: found both"),
        ({"max_kld": 0.1, "text": "short"}, "need at least 256, one window"),
    ],
)
def test_what_cannot_be_is_refused(source, target, tmp_path, options, message):
    with pytest.raises(InvalidParameterError, match=message):
        quantize(source, target, **options)
    assert names(tmp_path) == []
