"""Bound what one rendering of a template may cost: seconds, bytes made, sizes of values.

A template comes with the model file and may be hostile, and nothing can stop a Python thread from
outside. So every operation that can take long or make something large asks here first.
"""

import re
import sys
import time
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any

from edgeinfer.errors import TemplateError

MAX_SECONDS = 2.0
MAX_BYTES = 64 << 20
# A long conversation is the caller's own: each of its bytes may be copied this often and take this
# long (measured: 0.4 us a byte with short messages on one busy core).
BYTES_PER_INPUT_BYTE = 32
SECONDS_PER_INPUT_BYTE = 1e-6
# Items of a value that is written out, compared or hashed.
MAX_ITEMS = 300_000
MAX_INT_BITS = 4096
MAX_WIDTH = 1000
_WALK_CHECK = 4096

_CONTAINERS = (list, tuple, dict, set, frozenset, KeysView, ValuesView, ItemsView)
_PRINTF = re.compile(r"%(?:\(.*?\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?[hlL]?(.)", re.DOTALL)


def words(text: str) -> tuple[str, ...]:
    """Return the words of a table row."""
    return tuple(text.split())


class Budget:
    """What is left of one rendering's time and memory."""

    def __init__(self, input_bytes: int) -> None:
        self._max_items = MAX_ITEMS + input_bytes
        self._bytes_left = MAX_BYTES + BYTES_PER_INPUT_BYTE * input_bytes
        seconds = MAX_SECONDS + SECONDS_PER_INPUT_BYTE * input_bytes
        self._deadline = time.monotonic() + seconds
        self._thread_deadline = time.thread_time() + seconds

    def tick(self) -> None:
        """Raise TemplateError when the time is up; time spent waiting for others is free."""
        if time.monotonic() > self._deadline and time.thread_time() > self._thread_deadline:
            raise TemplateError(f"it took longer than {MAX_SECONDS:g} s and was stopped")

    def check(self, n_bytes: int) -> None:
        """Raise TemplateError if an operation about to make n_bytes has no room."""
        self.tick()
        if n_bytes > self._bytes_left:
            raise TemplateError(f"it needed more than {MAX_BYTES >> 20} MB and was stopped")

    def spend(self, n_bytes: int) -> None:
        """Count bytes that were made."""
        self.check(n_bytes)
        self._bytes_left -= n_bytes

    def made(self, value: Any) -> Any:
        """Count a value that was made and return it."""
        if isinstance(value, (str, bytes, list, tuple, dict, set)):
            self.spend(sys.getsizeof(value))
        elif isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
            raise TemplateError(f"it computed a number of more than {MAX_INT_BITS} bits")
        else:
            self.tick()
        return value

    def check_deep(self, value: Any) -> int:
        """Return the size of a value written out in full; shared parts count each time.

        A list that holds another twice, which holds another twice and so on, is small in memory,
        but text, comparison and hash of it take time exponential in its depth.
        """
        total, stack, steps = 0, [value], 0
        while stack:
            item = stack.pop()
            steps += 1
            if isinstance(item, Mapping):
                total += 16 * len(item)
                stack += item.keys()
                stack += item.values()
            elif isinstance(item, _CONTAINERS):
                total += 8 * len(item)
                stack += item
            else:
                total += sys.getsizeof(item) if isinstance(item, str) else 32
            if steps % _WALK_CHECK == 0:
                self.check(total)
                if steps + len(stack) > self._max_items:
                    raise TemplateError(f"it uses a value of more than {MAX_ITEMS} items")
        self.check(total)
        return total

    def comparable(self, value: Any) -> Any:
        """Return the value, having made sure that comparing or hashing it ends."""
        if isinstance(value, _CONTAINERS):
            self.check_deep(value)
        return value

    def text(self, value: Any) -> str:
        """Return str(value) of a value of bounded size."""
        if isinstance(value, str):
            return str(value)
        if isinstance(value, _CONTAINERS):
            self.check(2 * self.check_deep(value))
        elif type(value).__name__ == "Namespace":
            raise TemplateError("it writes out a namespace, which is not supported")
        return str(value)

    def check_printf(self, template: str, values: Any) -> None:
        """Check the size of `template % values`."""
        n_specs = 0
        for width, precision, _ in _PRINTF.findall(template):
            n_specs += 1
            self.check_width(width)
            self.check_width(precision)
        size = self.check_deep(values) if n_specs else 0
        self.check(len(template) + n_specs * (size + 2 * MAX_WIDTH))

    def check_format(self, template: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Check the size of `template.format(*args, **kwargs)`."""
        for spec in re.findall(r":([^{}]*)\}?", template):
            for number in re.findall(r"\d+", spec):
                self.check_width(number)
        if re.search(r":[^{}]*\{", template):
            self.check_width("*")
        n_fields = template.count("{")
        size = self.check_deep((args, kwargs)) if n_fields else 0
        self.check(len(template) + n_fields * (size + 2 * MAX_WIDTH))

    def check_width(self, width: str) -> None:
        """Refuse a field width that is large or comes from a value."""
        if width and (width == "*" or len(width) > 6 or int(width) > MAX_WIDTH):
            raise TemplateError(f"it pads to a width of {width[:20]} (allowed up to {MAX_WIDTH})")
