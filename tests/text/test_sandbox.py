"""Hostile templates end in TemplateError within their bounds of time and memory."""

import resource
import time
import tracemalloc
from datetime import datetime
from typing import Any

import pytest

from edgeinfer.errors import TemplateError
from edgeinfer.text import budget
from edgeinfer.text.chat import ChatTemplate

USER = [{"role": "user", "content": "Hi"}]


def rendered(source: str, **variables: Any) -> str:
    return ChatTemplate(source).render(USER, **variables)


NESTED = "{% for a in range(99999) %}{% for b in range(99999) %}{{ BODY }}{% endfor %}{% endfor %}"
DOUBLED = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
DOUBLED += "{% endfor %}"

BOMBS = {
    "nested loops": NESTED.replace("{{ BODY }}", ""),
    "nested loops with output": NESTED.replace("BODY", "b"),
    "loop variable": NESTED.replace("BODY", "loop.index"),
    "recursive loop": "{% for a in range(99999) recursive %}{{ loop(range(99999)) }}{% endfor %}",
    "lazy maps": "{{ [range(99999)] * 99999 | map('sum') | list }}",
    "sum of ranges": "{% for a in range(99999) %}{{ range(99999)|sum }}{% endfor %}",
    "product": "{{ 'a' * 10**9 }}",
    "product of list": "{{ [1] * 10**9 }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "power of variable": "{% set n = 9 %}{{ n ** (n ** n) }}",
    "big integer": "{% set ns = namespace(x=9) %}{% for i in range(99) %}"
    "{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
    "center": "{{ 'a'|center(10**9) }}",
    "center method": "{{ 'a'.center(10**9) }}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "expandtabs": "{{ '\\t'.expandtabs(10**9) }}",
    "printf width": "{{ '%01000000000d'|format(1) }}",
    "printf width operator": "{{ '%01000000000d' % 1 }}",
    "printf star": "{{ '%*d' % (10**9, 1) }}",
    "printf precision": "{{ '%.1000000000f' % 1 }}",
    "format width": "{{ '{:>1000000000}'.format('') }}",
    "format nested width": "{{ '{:{}}'.format('', 10**9) }}",
    "format fields": "{% set s = 'a' * 10**6 %}{{ ('{0}' * 10**4).format(s) }}",
    "doubling": "{% set ns = namespace(x='a') %}{% for i in range(40) %}"
    "{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "doubling by tilde": "{% set ns = namespace(x='a') %}{% for i in range(40) %}"
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "doubling by replace": "{% set ns = namespace(x='a') %}{% for i in range(40) %}"
    "{% set ns.x = ns.x.replace('a', 'aa') %}{% endfor %}",
    "doubling by join": "{% set ns = namespace(x='a') %}{% for i in range(40) %}"
    "{% set ns.x = [ns.x, ns.x]|join %}{% endfor %}",
    "doubling by set block": "{% set ns = namespace(x='a') %}{% for i in range(40) %}"
    "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "doubling by extend": "{% set x = [1] %}{% for i in range(40) %}"
    "{% set _ = x.extend(x) %}{% endfor %}",
    "doubling by macro": "{% macro m(s) %}{{ s }}{{ s }}{% endmacro %}"
    "{% set ns = namespace(x='a') %}{% for i in range(40) %}{% set ns.x = m(ns.x) %}{% endfor %}",
    "doubled list as text": DOUBLED + "{{ ns.x }}",
    "doubled list as JSON": DOUBLED + "{{ ns.x|tojson }}",
    "doubled list by tilde": DOUBLED + "{{ ns.x ~ '' }}",
    "doubled list by printf": DOUBLED + "{{ '%s' % [ns.x] }}",
    "doubled list compared": DOUBLED
    + "{% set ns.y = [1] %}{% for i in range(60) %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
    "{{ ns.x == ns.y }}",
    "doubled list tested": DOUBLED
    + "{% set ns.y = [1] %}{% for i in range(60) %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
    "{{ ns.x is eq(ns.y) }}",
    "doubled tuple hashed": "{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}"
    "{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}",
    "doubled tuple as key": "{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}"
    "{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {}[ns.x] }}{{ {}.get(ns.x) }}",
    "doubled list unique": DOUBLED + "{{ [ns.x, ns.x]|sort }}",
    "kept strings": "{% set ns = namespace(x=[]) %}{% for i in range(999) %}"
    "{% set _ = ns.x.append('%d' % i ~ 'a' * 10**6) %}{% endfor %}",
    "kept slices": "{% set s = 'a' * 10**6 %}{% set x = [] %}{% for i in range(999) %}"
    "{% set _ = x.append(s[i:]) %}{% endfor %}",
    "kept literals": "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}"
    "{% for j in range(999) %}{% set ns.x = [ns.x, 1, 2, 3, 4, 5, 6, 7, 8, 9] %}"
    "{% endfor %}{% endfor %}",
    "split": "{{ ('a' * 3 * 10**7).split('a')|length }}",
    "strip set": "{{ ('ab' * 10**6).strip('b' * 10**6) }}",
    "indent": "{{ ('\\n' * 10**6)|indent(10**6) }}",
    "indent text": "{{ ('a\\n' * 10**5)|indent('a' * 10**5) }}",
    "batch": "{{ [1]|batch(10**9, 1)|list }}",
    "slice": "{{ [1]|slice(10**9)|list }}",
    "round": "{{ 1.5|round(10**9) }}",
    "lipsum": "{{ lipsum(n=200000) }}",
    "JSON indent": "{{ {'a': [1]}|tojson(indent=10**9) }}",
    "to_bytes": "{{ (1).to_bytes(10**9, 'big') }}",
    "strftime": "{{ strftime_now('%Y' * 10**6) }}",
    "macro recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "macro tree": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    "{{ m(60) }}",
    "block tree": "{% block a %}x{% endblock %}"
    + "".join(
        f"{{% if false %}}{{% block {b} %}}{{{{ self.{a}() * 1 }}}}{{{{ self.{a}() }}}}"
        f"{{% endblock %}}{{% endif %}}"
        for a, b in zip("abcdefghijklmnopqrstuvwxyz", "bcdefghijklmnopqrstuvwxyzA", strict=True)
    )
    + "{{ self.A() }}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "long sum": "{{ " + "1+" * 50000 + "1 }}",
    "ten megabytes": "a" * 10_000_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_is_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_SECONDS", 0.3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.thread_time()

    with pytest.raises(TemplateError):
        rendered(BOMBS[name])

    # The last operation before the cut may take a second; unbounded, each takes minutes.
    assert time.thread_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


ESCAPES = {
    "class walk": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals of cycler": "{{ cycler.__init__.__globals__.os.system('true') }}",
    "attr filter": "{{ ''|attr('__class__')|attr('__mro__') }}",
    "map of attributes": "{{ ['']|map(attribute='__class__')|list|first() }}",
    "format": "{{ '{0.__class__.__init__.__globals__}'.format(raise_exception) }}",
    "format_map": "{{ '{a.__class__.__mro__}'.format_map({'a': 1})[0].x.y }}",
    "generator frame": "{{ (range(3)|map('string')).gi_frame.f_globals }}",
    "function globals": "{{ raise_exception.__globals__ }}{{ raise_exception.__globals__.x }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import '/etc/passwd' as x %}",
    "extends": "{% extends '/etc/passwd' %}",
    "dict of class": "{{ namespace.__dict__.x }}",
    "autoescape": "{% autoescape true %}{{ '<' }}{% endautoescape %}",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_python_is_out_of_reach(name: str) -> None:
    try:
        text = rendered(ESCAPES[name])
    except TemplateError:
        return
    assert "object at" not in text and "__" not in text and "class" not in text


def test_many_small_pieces_of_output_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_SECONDS", 0.3)
    with pytest.raises(TemplateError):
        rendered(
            "{% set x %}{% for i in range(99999) %}" + "{{ i }}" * 2000 + "{% endfor %}{% endset %}"
        )


def test_ordinary_template_costs_little_memory() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    messages = [{"role": "user", "content": "x" * 1000}] * 1000
    template.render(messages)
    tracemalloc.start()

    template.render(messages)

    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_functions_and_filters_of_templates_in_the_wild() -> None:
    assert rendered("{{ {'a': '<é>', 'b': [1, none]}|tojson }}") == '{"a": "<é>", "b": [1, null]}'
    assert rendered("{{ {'a': 1}|tojson(indent=2) }}") == '{\n  "a": 1\n}'
    assert rendered("{{ (messages|map(attribute='role'))|tojson }}") == '["user"]'
    assert rendered("{{ ('{\"a\": [1]}'|from_json).a[0] + 1 }}") == "2"
    assert rendered("{{ strftime_now('%Y') }}") == datetime.now().strftime("%Y")
    assert rendered("{{ '<b>'|safe }}{{ '<b>'|e }}") == "<b>&lt;b&gt;"
    assert rendered("{{ ' a '|trim ~ 'b'.upper() ~ ('%s-%03d' % ('c', 7)) }}") == "aBc-007"
    assert rendered("{{ '{} and {:>3}'.format('a', 'b') }}") == "a and   b"
    assert rendered("{{ [3, 1, 2]|sort|join(', ') }}{{ [1, 2]|sum }}") == "1, 2, 33"
    assert rendered("{{ messages[0].content[::-1] }}{{ messages[-1:]|length }}") == "iH1"
    assert rendered("{{ 'a b c'.split(' ')[1] }}{{ 'a\nb'.splitlines()|length }}") == "b2"
    assert rendered("{{ [1]|string }}{{ {'a': 'b'} }}") == "[1]{'a': 'b'}"
    assert rendered("{{ x is defined }}{{ none is none }}{{ tools is none }}") == "FalseTrueTrue"
    assert rendered("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}") == "a1"
    assert rendered("{{ ([1, 2] + [3])[2] * 2 }}{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 5 }}") == "63332"


def test_blocks_are_trimmed_and_loops_controlled() -> None:
    source = (
        "{% for i in range(9) %}\n"
        "    {% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}\n"
        "{{ i }}{{ ',' if not loop.last }}{{ loop.length }} \n"
        "{% endfor %}\n"
    )

    assert rendered(source) == "0,9 \n2,9 \n"


def test_generation_tag_is_transparent() -> None:
    source = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}!"
    )

    assert rendered(source) == "Hi!"


def test_lists_of_the_caller_are_not_changed_by_append() -> None:
    tools = [{"name": "f"}]

    assert rendered("{% set _ = tools.append(1) %}{{ tools|length }}", tools=tools) == "2"
    assert tools == [{"name": "f"}]
