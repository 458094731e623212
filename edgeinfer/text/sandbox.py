"""Render Jinja templates that may be hostile: nothing of Python in reach, every step counted.

Goes in: template source, variables. Comes out: text or an error. Jinja's own sandbox keeps
templates from Python's internals; the budget here keeps them from the machine's time and memory.

NOTE where the steps are counted. Jinja compiles templates to Python. The code generator below and
Jinja's own hooks put a check at each thing that can repeat or grow: every iteration of a loop
(Ticking), every call, filter, arithmetic operator, `~`, slice, literal list or dict, comparison,
and every piece of output. What lies between two checks is bounded by the template's length.
"""

import sys
import types
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace

from edgeinfer.errors import TemplateError
from edgeinfer.text.budget import MAX_INT_BITS, Budget, words
from edgeinfer.text.filters import TICKING, make_filters, make_tests

# The longest template in wide use has 30 kB.
MAX_SOURCE = 128 << 10
_MAX_TIME_FORMAT = 200
_MAX_STRIP_SET = 1000
_NEW_LINES = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"

_METHODS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (
        str,
        words(
            "capitalize casefold center count endswith find index isalnum isalpha isascii "
            "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper "
            "join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex "
            "rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title upper "
            "zfill"
        ),
    ),
    (list, words("append clear copy count extend index insert pop remove reverse sort")),
    (dict, words("copy get items keys pop setdefault update values")),
    (tuple, words("count index")),
)
_COMPARING_METHODS = words("count index remove sort get pop setdefault update")


class GenerationTag(Extension):
    """`{% generation %}`: marks the assistant's words for training; renders as if not there."""

    tags = {"generation"}  # noqa: RUF012  (the type Jinja's class declares)

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


class _CheckedCode(CodeGenerator):
    """Python code with the checks in it."""

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
            return
        self.write("environment.budget.made(")
        super().visit_Tuple(node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self.write("environment.budget.made(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("environment.new_dict((")
        for item in node.items:
            self.write("(")
            self.visit(item.key, frame)
            self.write(", ")
            self.visit(item.value, frame)
            self.write("), ")
        self.write("))")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.join((")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.write("(")
        self._comparable(node.expr, frame)
        for operand in node.ops:
            self.write(f" {operators[operand.op]} ")
            self._comparable(operand.expr, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.budget.made(")
        super().visit_Getitem(node, frame)
        self.write(")")

    def visit_ScopedEvalContextModifier(
        self, node: nodes.ScopedEvalContextModifier, frame: Frame
    ) -> None:
        self.fail("autoescape is not supported in chat templates", node.lineno)

    def _comparable(self, node: nodes.Node, frame: Frame) -> None:
        if isinstance(node, nodes.Const):
            self.visit(node, frame)
            return
        self.write("environment.budget.comparable(")
        self.visit(node, frame)
        self.write(")")


class Sandbox(SandboxedEnvironment):
    """A Jinja environment set up as Hugging Face's, with a budget. One rendering at a time."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))
    code_generator_class = _CheckedCode

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
        )
        self.budget = Budget(0)
        self.finalize = self._finalize
        self.filters = make_filters(self)
        self.tests = make_tests(self)
        self.globals = {
            "cycler": Cycler,
            "dict": _make_dict,
            "joiner": Joiner,
            "namespace": Namespace,
            "raise_exception": _raise_exception,
            "range": self.globals["range"],
            "strftime_now": _strftime_now,
        }
        self._callables = frozenset(self.globals.values())

    def render(self, source: str, variables: dict[str, Any], input_bytes: int) -> str:
        """Return the text of a template. Raises whatever Jinja or the budget raise."""
        self.budget = Budget(input_bytes)
        template = self._compiled(source)
        parts: list[str] = []
        for part in template.root_render_func(template.new_context(variables)):
            self.budget.spend(8 + len(part))
            parts.append(part)
        return "".join(parts)

    def _compiled(self, source: str) -> Any:
        if len(source) > MAX_SOURCE:
            raise TemplateError(f"it is {len(source)} characters long (allowed {MAX_SOURCE})")
        cached = getattr(self, "_template", None)
        if cached is None or cached[0] != source:
            self._template = cached = (source, self.from_string(source))
        return cached[1]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(nodes.For)):
            ticking = nodes.Filter(loop.iter, TICKING, [], [], None, None, lineno=loop.lineno)
            loop.iter = ticking.set_environment(self)
        return tree

    def concat(self, parts: Any) -> str:
        """Join the output of a macro, a call block or a set block."""
        pieces: list[str] = []
        for part in parts:
            self.budget.spend(8 + len(part))
            pieces.append(part)
        return "".join(pieces)

    def join(self, operands: tuple[Any, ...]) -> str:
        """Evaluate `a ~ b`."""
        texts = [self.budget.text(operand) for operand in operands]
        self.budget.check(sum(map(sys.getsizeof, texts)))
        return self.budget.made("".join(texts))  # type: ignore[no-any-return]

    def new_dict(self, items: tuple[tuple[Any, Any], ...]) -> dict[Any, Any]:
        """Evaluate a dict literal."""
        return self.budget.made(  # type: ignore[no-any-return]
            {self.budget.comparable(key): value for key, value in items}
        )

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, slice):
            return self.budget.made(super().getitem(obj, argument))
        return super().getitem(obj, self.budget.comparable(argument))

    def add(self, left: Any, right: Any) -> Any:
        """Evaluate `left + right`."""
        return self.call_binop(None, "+", left, right)

    def call_binop(self, context: Context | None, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            self.budget.check_printf(left, right)
        elif operator in ("*", "**"):
            self._check_product(operator, left, right)
        elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            self.budget.check(sys.getsizeof(left) + sys.getsizeof(right))
        return self.budget.made(self.binop_table[operator](left, right))

    def _check_product(self, operator: str, left: Any, right: Any) -> None:
        for value, times in ((left, right), (right, left)):
            if hasattr(value, "__len__") and isinstance(times, int) and times > 0:
                self.budget.check(sys.getsizeof(value) * times)
        if isinstance(left, int) and isinstance(right, int):
            bits, more = left.bit_length(), right.bit_length()
            if (bits * right if operator == "**" else bits + more) > MAX_INT_BITS:
                raise TemplateError(f"it computes a number of more than {MAX_INT_BITS} bits")

    def wrap_str_format(self, value: Any) -> Any:
        inner = super().wrap_str_format(value)
        return None if inner is None else _StrFormat(self, value, inner)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        __self.budget.tick()
        if isinstance(__obj, types.BuiltinMethodType):
            args = __self._check_method(__obj, args, kwargs)
        elif not __self._may_call(__obj):
            raise TemplateError(f"it calls {type(__obj).__name__} {str(__obj)[:60]!r}")
        return __self.budget.made(super().call(__context, __obj, *args, **kwargs))

    def _may_call(self, obj: Any) -> bool:
        if isinstance(obj, types.MethodType):
            return isinstance(obj.__self__, (LoopContext, Cycler))
        if isinstance(obj, (Macro, LoopContext, Joiner, Undefined, _StrFormat)):
            return True
        if type(obj).__name__ == "BlockReference":
            return True
        return isinstance(obj, (types.FunctionType, type)) and obj in self._callables

    def _check_method(
        self, method: types.BuiltinMethodType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Check a method of a built-in type; return the arguments to call it with."""
        receiver, name = method.__self__, method.__name__
        for kind, names in _METHODS:
            if isinstance(receiver, kind):
                if name in names:
                    break
                raise TemplateError(f"it calls {kind.__name__}.{name}, which is not supported")
        else:
            raise TemplateError(f"it calls {type(receiver).__name__}.{name}")
        if isinstance(receiver, str):
            return self._check_str_method(receiver, name, args, kwargs)
        if name == "extend":
            args = (self.filters["list"](*args),)
            self.budget.spend(8 * len(args[0]))
        elif name in _COMPARING_METHODS:
            if isinstance(receiver, (list, tuple)) and name != "pop":
                self.budget.check_deep(receiver)
            self.budget.check_deep(args)
        self.budget.spend(64)
        return args

    def _check_str_method(
        self, text: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        check = self.budget.check
        check(2 * len(text))
        if name == "replace" and len(args) >= 2:
            check(4 * (len(text) + text.count(args[0]) * len(args[1])))
        elif name == "join" and args:
            parts = self.filters["list"](args[0])
            check(sum(sys.getsizeof(part) for part in parts) + len(text) * len(parts))
            return (parts,)
        elif name in ("split", "rsplit"):
            separator = args[0] if args else kwargs.get("sep")
            pieces = text.count(separator) if separator else len(text) // 2
            check(len(text) + 60 * (pieces + 1))
            self.budget.spend(min(60 * pieces, 2 * len(text)))
        elif name == "splitlines":
            check(len(text) + 60 * sum(map(text.count, _NEW_LINES)))
        elif name in ("center", "ljust", "rjust", "zfill") and args:
            self.budget.check_width(str(args[0]))
        elif (
            name in ("strip", "lstrip", "rstrip") and len((args or ("",))[0] or "") > _MAX_STRIP_SET
        ):
            raise TemplateError(f"it strips a set of {len(args[0])} characters")
        return args

    def _finalize(self, value: Any) -> str:
        text = self.budget.text(value)
        self.budget.spend(8 if text is value else sys.getsizeof(text))
        return text


class _StrFormat:
    """`text.format` as templates may call it."""

    def __init__(self, sandbox: Sandbox, method: Any, inner: Any) -> None:
        self._sandbox = sandbox
        self._text: str = method.__self__
        self._inner = inner

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        self._sandbox.budget.check_format(self._text, args, kwargs)
        result: str = self._inner(*args, **kwargs)
        return result


class RefusedError(TemplateError):
    """The template itself refused the conversation."""


def _raise_exception(message: Any) -> None:
    raise RefusedError(str(message)[:2000])


def _strftime_now(format: str) -> str:
    if len(format) > _MAX_TIME_FORMAT:
        raise TemplateError(f"it formats the time by {len(format)} characters")
    return datetime.now().strftime(format)


def _make_dict(**items: Any) -> dict[str, Any]:
    return items
