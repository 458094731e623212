"""Offer a driver to event loops: nothing here blocks the loop it is called from."""

import asyncio
from types import TracebackType

from edgeinfer.engine.driver import Driver
from edgeinfer.engine.handle import Handle, PromptProgress
from edgeinfer.engine.sequence import Sequence


class AsyncEngine:
    """A driver, whose handles are awaited; it may serve several loops and threads at once.

    Example:
        >>> async with AsyncEngine(driver) as engine:
        ...     async for event in engine.submit(sequence):
        ...         print(event)
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def submit(
        self,
        sequence: Sequence,
        *,
        timeout_s: float | None = None,
        progress: PromptProgress | None = None,
    ) -> Handle:
        """Start `sequence`; see `Driver.submit`."""
        return self._driver.submit(sequence, timeout_s=timeout_s, progress=progress)

    async def run(self, sequence: Sequence, *, timeout_s: float | None = None) -> Sequence:
        """Start `sequence` and wait for its end; cancelling the task cancels it.

        Raises what `submit` raises, and what made the sequence fail.
        """
        return await self._driver.submit(sequence, timeout_s=timeout_s)

    async def close(self) -> None:
        """End all sequences and free the executable; see `Driver.close`."""
        await asyncio.to_thread(self._driver.close)

    async def __aenter__(self) -> "AsyncEngine":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
