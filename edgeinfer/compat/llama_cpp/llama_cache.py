"""Take the caches of llama-cpp-python: edgeinfer keeps prefixes by itself, so they hold nothing."""

from collections.abc import Sequence
from typing import Any

CAPACITY_BYTES = 2 << 30


class BaseLlamaCache:
    """A cache in name; what a prompt shares with earlier ones is found without it."""

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self.capacity_bytes = capacity_bytes

    @property
    def cache_size(self) -> int:
        """Bytes in this cache."""
        return 0

    def __contains__(self, key: Sequence[int]) -> bool:
        return False

    def __getitem__(self, key: Sequence[int]) -> Any:
        raise KeyError("Key not found")

    def __setitem__(self, key: Sequence[int], value: Any) -> None:
        pass


class LlamaRAMCache(BaseLlamaCache):
    """See BaseLlamaCache."""


LlamaCache = LlamaRAMCache


class LlamaDiskCache(BaseLlamaCache):
    """See BaseLlamaCache; writes no file."""

    def __init__(
        self, cache_dir: str = ".cache/llama_cache", capacity_bytes: int = CAPACITY_BYTES
    ) -> None:
        super().__init__(capacity_bytes)
        self.cache_dir = cache_dir
