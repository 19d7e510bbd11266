"""One root of errors, drawn: what the code defines and what the drawings say agree."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator

import pytest

import rfa
from rfa import errors
from rfa.secagg import errors as secagg_errors


def defined() -> Iterator[type[BaseException]]:
    """Every exception that a module of rfa defines."""
    pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
    for info in pkgutil.walk_packages(rfa.__path__, "rfa."):
        module = importlib.import_module(info.name)
        for _, member in inspect.getmembers(module, inspect.isclass):
            if issubclass(member, BaseException) and member.__module__ == info.name:
                yield member


def drawn(text: str) -> Iterator[tuple[str, str]]:
    """The names in a drawing of a tree, each with the name of its parent."""
    above: list[tuple[int, str]] = []
    for bars, name in re.findall(r"^([ │├└─]+)(\w+Error)\b", text, re.MULTILINE):
        above = [(indent, other) for indent, other in above if indent < len(bars)]
        yield name, above[-1][1] if above else ""
        above.append((len(bars), name))


def test_every_error_derives_from_the_root_and_is_drawn_below_its_parent() -> None:
    parents = {
        name: parent
        for module in (secagg_errors, errors)
        for name, parent in drawn(module.__doc__ or "")
        if name != parent
    }
    classes = list(defined())
    assert len(classes) > 40
    for error in classes:
        assert issubclass(error, rfa.RfaError), error
        assert error.__name__ in parents, f"{error} is not drawn"
        parent = parents[error.__name__]
        assert parent in {"", *(base.__name__ for base in error.__mro__[1:])}, error
    assert set(parents) == {error.__name__ for error in classes}, "drawn, but not there"
