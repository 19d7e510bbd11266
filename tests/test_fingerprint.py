"""Fingerprints: the same content the same everywhere, another content another."""

from __future__ import annotations

import collections
import datetime
import enum
import functools
import importlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa import PluginError
from rfa._code import check_as_imported
from rfa._fingerprint import fingerprint
from rfa._sources import own_sources

ROOT = Path(__file__).parents[1]


def defined(source: str, name: str = "f") -> Any:
    """What a notebook would define by a source."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(textwrap.dedent(source), "cell", "exec", dont_inherit=True), space)  # noqa: S102
    return space[name]


def same(*sources: str) -> bool:
    return len({fingerprint(defined(source)) for source in sources}) == 1


OTHERS: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    ("1", 1),
    (b"a", "a"),
    ([1, 2], [2, 1]),
    ([1, 2], (1, 2)),
    ({1, 2}, frozenset({1, 2})),
    ({"a": 1}, {"a": 2}),
    ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
    (["ab", "c"], ["a", "bc"]),
    (np.zeros(3), np.zeros(3, np.float32)),
    (np.zeros((2, 3)), np.zeros((3, 2))),
    (np.arange(3), np.array([0, 2, 1])),
    (np.float32(1), np.float64(1)),
    (np.dtype("f4"), np.dtype("f8")),
    (np.array(["a", None], object), np.array(["a", 1], object)),
    (np.random.default_rng(1), np.random.default_rng(2)),
    (functools.partial(print, 1), functools.partial(print, 2)),
    (functools.partial(print, 1), functools.partial(repr, 1)),
    ([0].append, [1].append),
    (np.add, np.multiply),
    (np.linalg.norm, np.linalg.det),
    (Path("a"), Path("b")),
    (datetime.timedelta(1), datetime.timedelta(2)),
    (collections.deque([1]), collections.deque([2])),
    (collections.OrderedDict(a=1), collections.OrderedDict(a=2)),
    (json, os),
    (int, float),
]


@pytest.mark.parametrize(("first", "second"), OTHERS)
def test_other_values_have_other_fingerprints(first: Any, second: Any) -> None:
    assert fingerprint(first) != fingerprint(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({(1, 2): {"x"}, 3: 4}, {3: 4, (1, 2): {"x"}}),
        ({"a", "b", "c"}, {"c", "b", "a"}),
        (
            np.arange(6).reshape(2, 3),
            np.arange(12).reshape(2, 6)[:, :3] % 6 * 0 + [[0, 1, 2], [3, 4, 5]],
        ),
        (np.arange(6).reshape(2, 3).T, np.array([[0, 3], [1, 4], [2, 5]])),
        (np.random.default_rng(1), np.random.default_rng(1)),
    ],
)
def test_equal_values_have_the_same(first: Any, second: Any) -> None:
    assert fingerprint(first) == fingerprint(second)


CODE = """
import numpy as np
SCALE = 2
def helper(x):
    return x * SCALE
def outer(limit):
    def inner(x, low=0, *, high=9):
        if x in {"a", "b"}:
            return [helper(y) + limit for y in x]
        return np.clip(x, low, high)
    return inner
f = outer(5)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 2", "SCALE = 3"),
        ("x * SCALE", "SCALE - x"),
        ("outer(5)", "outer(6)"),
        ("low=0", "low=1"),
        ("high=9", "high=8"),
        ('"b"}', '"c"}'),
        ("np.clip", "np.add"),
        ("import numpy as np", "import math as np"),
        (" + limit", " - limit"),
    ],
)
def test_code_counts_with_all_that_it_uses(old: str, new: str) -> None:
    assert CODE.count(old) == 1
    assert not same(CODE, CODE.replace(old, new))


def test_how_and_where_code_is_written_does_not_count() -> None:
    lines = CODE.replace("    def inner", "\n    # a remark\n    def inner").replace(
        ", low", ",\n low"
    )
    assert same(
        CODE, "\n\n# elsewhere\n" + lines, CODE + "\nunused = 1\nlimit = 2\nclip = object\n"
    )


def test_a_global_that_only_has_the_name_of_an_attribute_does_not_count() -> None:
    source = "def f(x):\n    return x.result\n"
    assert same(source, source + "result = (i for i in ())\n")


CLASS = """
from dataclasses import dataclass
class Base:
    factor = 2
    def step(self, x):
        return x * self.factor
@dataclass(frozen=True)
class Kind(Base):
    steps: int = 3
    names: tuple = ("a",)
    def run(self, x):
        return super().step(x) + self.steps + Kind.most()
    @staticmethod
    def most():
        return 7
    @property
    def half(self):
        return self.steps / 2
f = Kind()
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("factor = 2", "factor = 3"),
        ("x * self", "x + self"),
        ("steps: int = 3", "steps: int = 4"),
        ("return 7", "return 8"),
        ("self.steps / 2", "self.steps / 3"),
        ("Kind()", "Kind(5)"),
        ("(Base)", ""),
    ],
)
def test_a_value_counts_with_its_class_and_what_that_inherits(old: str, new: str) -> None:
    assert CLASS.count(old) == 1
    assert not same(CLASS, CLASS.replace(old, new))
    assert same(CLASS, CLASS.replace("    def run", "\n    # a remark\n\n    def run"))


class Color(enum.Enum):
    RED, BLUE = 1, 2


class Slots:
    __slots__ = ("__hidden", "seen")

    def __init__(self, seen: int, hidden: int) -> None:
        self.seen, self.__hidden = seen, hidden


class Cached:
    @functools.cached_property
    def table(self) -> list[int]:
        return [1]


class Words(list[str]):
    pass


@dataclass
class Data:
    """Stands for its name, whatever it holds."""

    name: str
    rows: Any

    def __fingerprint__(self) -> Any:
        return self.name


def test_values_of_special_kinds() -> None:
    assert fingerprint(Color.RED) != fingerprint(Color.BLUE)
    assert len({fingerprint(Slots(*pair)) for pair in ((1, 2), (1, 3), (2, 2))}) == 3
    assert fingerprint(Words("ab")) != fingerprint(Words("ac"))
    assert fingerprint(Data("a", open)) == fingerprint(Data("a", iter(())))
    assert fingerprint(Data("a", 1)) != fingerprint(Data("b", 1))
    lazy, used = Cached(), Cached()
    assert used.table
    assert fingerprint(lazy) == fingerprint(used)


def test_methods_count_with_their_object() -> None:
    assert fingerprint(Slots(1, 2).__init__) != fingerprint(Slots(1, 3).__init__)


def test_memory_of_calls_does_not_count() -> None:
    source = "import functools\n@functools.lru_cache\ndef f(x):\n    return x + {}\n"
    used = defined(source.format(1))
    before = fingerprint(used)
    used(1)
    assert fingerprint(used) == before != fingerprint(defined(source.format(2)))


def test_what_refers_to_itself_has_one() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    other: list[Any] = [2]
    other.append(other)
    assert fingerprint(ring) != fingerprint(other)
    twins = "def f(n):\n    return n and g(n - 1)\ndef g(n):\n    return n + f({})\n"
    assert same(twins.format(1), "\n" + twins.format(1))
    assert not same(twins.format(1), twins.format(2))
    many = "\n".join(
        f"def f{i}(n): return " + " + ".join(f"f{j or ''}(n)" for j in range(30))
        for i in range(1, 30)
    )
    assert fingerprint(defined(many + "\ndef f(n): return f1(n)"))  # and not one for each path


def test_a_set_within_its_member_has_one() -> None:
    source = "class Node:\n    pass\nf = Node()\nf.all = {f, 1}\n"
    assert same(source, source)
    assert not same(source, source.replace("1", "2"))


def test_torch_counts_by_content() -> None:
    torch = pytest.importorskip("torch")
    first, twin, other = (torch.nn.Linear(2, 1) for _ in range(3))
    twin.load_state_dict(first.state_dict())
    assert fingerprint(first) == fingerprint(twin) != fingerprint(other)
    half = torch.zeros(2, dtype=torch.bfloat16)
    assert fingerprint(half) != fingerprint(half + 1)


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("kind", ["generator", "file"])
def test_what_has_no_identity_is_named(kind: str) -> None:
    function = defined("def f(x):\n    return helper(x)\ndef helper(x):\n    return held\n")
    with Path(os.devnull).open("rb") as file:
        function.__globals__["held"] = {"key": file if kind == "file" else generator()}
        with pytest.raises(
            PluginError, match=r"key of held of helper of f cannot be told .* give module:NAME"
        ):
            fingerprint(function)


def test_what_goes_too_deep_is_named() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(PluginError, match="too deep"):
        fingerprint(deep)
    while deep:  # else Python falls into it when it frees it
        deep = deep.pop()


def test_every_process_has_the_same() -> None:
    program = f"""
import sys
from rfa._fingerprint import fingerprint
space = {{"__name__": "__main__"}}
exec({CODE!r} + {CLASS!r}.replace("f = ", "g = ") , space)
things = [space["f"], space["g"], {{"a", "b", "c", 1, 2.5, None}}, {{(1, "x"): 2, "y": {{3, 4}}}}]
print(fingerprint(things))
"""
    answers = {
        subprocess.run(  # noqa: S603
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules can be imported, and are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, **modules: str) -> None:
    """Modules by their names; `__` stands for a folder."""
    for name, source in modules.items():
        path = folder / f"{name.replace('___', '/').replace('I', '__init__')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    importlib.invalidate_caches()


def test_own_modules_are_found_however_they_are_imported(folder: Path) -> None:
    write(
        folder,
        start="import a, json, numpy.linalg\ndef f():\n    from pkg import sub\n",
        a="import b\nfrom start import f\nfrom missing import nothing\nimport broken\n",
        b="try:\n    import c as d\nexcept ImportError:\n    d = None\n",
        c="import importlib\nimportlib.import_module('late')\n",
        late="from star import *\nfrom space.deep import leaf\n",
        broken="def (",
        pkg___I="from . import near\n",
        pkg___sub="from .other import x\nfrom ..far import y\n",
        pkg___near="import rfa._plugins\n",
        pkg___other="x = 1\n",
        pkg___unused="",
        star___I="__all__ = ['ray', 'light']\n",
        star___ray="",
        star___dark="",
        space___deep___leaf="import c\n",
        unused="",
    )
    wanted = "a b broken c late pkg pkg.near pkg.other pkg.sub space.deep.leaf star star.ray start"
    assert list(own_sources("start")) == wanted.split()
    assert own_sources("start")["b"].startswith(b"try:")
    assert "start" not in sys.modules, "nothing was run"
    assert own_sources("nowhere") == own_sources("numpy") == own_sources("rfa.errors") == {}


def test_a_module_counts_with_what_it_imports(folder: Path) -> None:
    def of_notebook(source: str) -> str:
        return fingerprint(defined(source))

    outside = "import tool\ndef f(x):\n    return tool.work(x)\n"
    inside = "def f(x):\n    from tool import work\n    return work(x)\n"
    taken = "from tool import work\ndef f(x):\n    return work(x)\n"
    write(
        folder,
        tool="from base import SCALE\ndef work(x):\n    return SCALE * x\n",
        base="SCALE = 2\n",
    )
    before = [of_notebook(source) for source in (outside, inside, taken)]
    assert [of_notebook(source) for source in (outside, inside, taken)] == before
    write(folder, base="SCALE = 3.5\n")
    for name in ("tool", "base"):
        del sys.modules[name]
    after = [of_notebook(source) for source in (outside, inside, taken)]
    assert all(new != old for new, old in zip(after, before, strict=True))


def test_code_that_was_changed_after_its_import_is_noticed(folder: Path) -> None:
    write(folder, tool="def work(x):\n    return x\n", base="SCALE = 2\n")
    tool, base = importlib.import_module("tool"), importlib.import_module("base")
    check_as_imported(own_sources("base"))
    write(folder, tool="def work(x):\n    return x + 1\n", base="SCALE = 3\n")
    for name in ("tool", "base"):  # one that we never saw before, and one that we did
        with pytest.raises(PluginError, match=rf"{name} has changed .* importlib.reload\({name}\)"):
            check_as_imported(own_sources(name))
    with pytest.raises(PluginError, match="tool has changed"):
        fingerprint(tool.work)
    importlib.reload(tool)
    importlib.reload(base)
    check_as_imported(own_sources("tool") | own_sources("base"))
    assert fingerprint(tool.work)


def test_code_that_hides_what_it_reads_is_refused() -> None:
    for hiding in (
        lambda: globals()["DEEPEST"],
        lambda: eval("DEEPEST"),  # noqa: S307
    ):
        with pytest.raises(PluginError, match=r"reads globals through (globals|eval)"):
            fingerprint(hiding)
