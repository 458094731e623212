"""Read which layers attend to the keys and values of earlier ones."""

from collections.abc import Sequence

from edgeinfer.arch.shared.blocks import Heads
from edgeinfer.loader.metadata import Metadata


def kv_sources(m: Metadata, plan: Sequence[Heads]) -> list[int]:
    """Return whose keys and values each layer reads: its own, or the last kept by one like it.

    Raises ModelFormatError if layers share and none before them is like one of them.
    """
    key, n = ".attention.shared_kv_layers", len(plan)
    first = n - m.integer(key, 0, least=0, most=n - 1)
    sources = list(range(first))
    for il in range(first, n):
        alike = [i for i in range(first) if plan[i] == plan[il]]
        if not alike:
            raise m.error(key, f"found {n - first} (need heads like those of {il} before them)")
        sources.append(alike[-1])
    return sources
