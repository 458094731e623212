"""Run what `edgeinfer eval` is asked for: load the models, measure, show progress."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from edgeinfer.cli.loading import load_model
from edgeinfer.cli.options import LoadFlags, read_text
from edgeinfer.cli.progress import Line
from edgeinfer.errors import InvalidParameterError

if TYPE_CHECKING:
    from edgeinfer.evaluating import Choice, Divergence, Perplexity
    from edgeinfer.evaluating.plot import Plotted
    from edgeinfer.model import Model

N_CTX = 512


def needed_text(file: Path | None) -> str:
    """Return the text of -f, which there is no default for."""
    if file is None:
        raise InvalidParameterError(
            "no text (need -f FILE: any UTF-8 text of some thousand words that is like what the "
            "model is used for; wikitext-2's wiki.test.raw makes figures comparable)"
        )
    return read_text(file)


def in_windows(loading: LoadFlags) -> LoadFlags:
    """Return the flags of a model that reads windows: contexts of 512 tokens, nothing guessed."""
    return replace(unguessed(loading), n_ctx=loading.n_ctx or N_CTX)


def unguessed(loading: LoadFlags) -> LoadFlags:
    """Return the flags of a model that only reads: there is nothing to guess at."""
    return replace(loading, speculate=False, draft=None)


@contextmanager
def predictor(name: str, loading: LoadFlags) -> Iterator["Model"]:
    """Load a model that predicts tokens. Raises InvalidParameterError for one that only reads."""
    with load_model(name, loading) as model:
        if model.pooling is not None:
            raise InvalidParameterError(
                f"{name}: reads texts and predicts no next token, so there is nothing to measure "
                "(need a model that writes)"
            )
        yield model


def shown(line: Line, name: str, unit: str = "windows") -> Callable[[int, int, float], None]:
    """Return the progress that shows the value so far."""
    return lambda n_done, n_total, value: line.update(f"{name} {value:.4f}", n_done, n_total, unit)


def predicted(name: str, file: Path | None, loading: LoadFlags, chunks: int | None) -> "Perplexity":
    """Measure perplexity and top 1."""
    from edgeinfer.evaluating import perplexity

    text, loading, line = needed_text(file), in_windows(loading), Line()
    with predictor(name, loading) as model, line:
        return perplexity(
            model, text, n_ctx=loading.n_ctx, chunks=chunks, progress=shown(line, "ppl")
        )


def diverged(
    names: list[str],
    file: Path | None,
    loading: LoadFlags,
    chunks: int | None,
    *,
    save_to: Path | None = None,
    saved: Path | None = None,
) -> "Divergence":
    """Measure the divergence of the last model from the first, or from what was saved of it."""
    from edgeinfer.evaluating import SavedLogits, divergence

    text = None if file is None and saved is not None else needed_text(file)
    n_ctx = loading.n_ctx if saved is not None else loading.n_ctx or N_CTX
    line = Line()
    with ExitStack() as stack:
        if saved is not None:
            kept = stack.enter_context(SavedLogits(saved))
            loading = replace(loading, n_ctx=kept.windows(n_ctx=n_ctx).n_ctx)
            reference: SavedLogits | Model = kept
        else:
            reference = stack.enter_context(predictor(names[0], in_windows(loading)))
        model = stack.enter_context(predictor(names[-1], in_windows(loading)))
        stack.enter_context(line)
        return divergence(
            reference,
            model,
            text,
            n_ctx=n_ctx,
            chunks=chunks,
            save_to=save_to,
            progress=shown(line, "kld"),
        )


def chosen(name: str, file: Path | None, loading: LoadFlags, chunks: int | None) -> "Choice":
    """Measure how often a model finds the right ending."""
    from edgeinfer.evaluating import choice, parse_tasks

    if file is None:
        raise InvalidParameterError(
            'no tasks (need -f FILE: a JSON object a line, {"ctx": ..., "endings": [...], '
            '"label": 0}, such as hellaswag_val.jsonl)'
        )
    tasks, line = parse_tasks(read_text(file), where=str(file))[:chunks], Line()
    with predictor(name, unguessed(loading)) as model, line:
        return choice(model, tasks, progress=shown(line, "right", "tasks"))


def plotted(
    names: list[str], file: Path | None, loading: LoadFlags, chunks: int | None, output: Path
) -> "Plotted":
    """Draw the divergence of models from the first one; its predictions are kept meanwhile."""
    from edgeinfer.evaluating.facts import facts_of
    from edgeinfer.evaluating.plot import Plotted, Point, check_installed, draw
    from edgeinfer.loader.resolve import resolve
    from edgeinfer.writer.workplace import Targets, check_targets, disk_errors

    check_installed()
    if output.suffix.lower() != ".png":
        raise InvalidParameterError(f"-o: found {str(output)!r} (need a name that ends in .png)")
    place = output.absolute().parent
    check_targets(Targets(place, (output.name,)), [], overwrite=True)
    points = []
    # beside the picture: the predictions can be larger than what /tmp is meant for
    with disk_errors(output), TemporaryDirectory(prefix=".edgeinfer-", dir=place) as folder:
        kept = Path(folder) / "logits"
        for index, name in enumerate(names[1:]):
            where = {"save_to": kept} if index == 0 else {"saved": kept}
            found = diverged([names[0], name], file, loading, chunks, **where)
            facts = facts_of(resolve(name))
            points.append(Point(facts.name.removesuffix(".gguf"), facts.n_bytes, found.kld))
    over = f"{found.n_tokens:,} tokens of {file.name if file else ''}"
    with disk_errors(output):
        draw(points, output, reference=facts_of(resolve(names[0])).name, over=over)
    return Plotted(tuple(points), str(output))
