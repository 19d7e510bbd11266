"""What an object of a user's own is, in a short text: the same for the same content.

Code counts as Python compiles it, with the defaults, closures and globals that it uses, so that
comments, blank lines and where it stands make no difference, while a helper, a constant or a
module that it imports does. What belongs to a library counts by its name. Code that reads globals
without their names (`globals()["a" + "b"]`) is refused.

>>> fingerprint({"a": 1, "b": {2, 3}}) == fingerprint({"b": {3, 2}, "a": 1})
True
>>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
False
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import itertools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, cast

import numpy as np

from rfa._code import (
    CONTENT,
    SKIPPED,
    atom_of,
    attributes_of,
    check_as_imported,
    hides,
    library_of,
    look_up,
    reduces,
    reduction_of,
    uses,
)
from rfa._sources import absolute_name, find_own, own_sources
from rfa.errors import PluginError

DEEPEST = 8
"""Steps that an error tells of the way to what it is about."""


def fingerprint(value: Any) -> str:
    """The identity of a value by its content, in hexadecimal.

    It is the same in every process. An object whose class has a method `__fingerprint__` stands
    for what that returns.

    Raises:
        PluginError: naming what has no identity, such as an open file or a generator, or a module
            that was changed after it was imported.
    """
    walk = _Walk()
    try:
        digest = walk.digest_of(value)
    except RecursionError:
        walk.fail(getattr(value, "__name__", type(value).__name__), "it goes too deep")
    for module in sorted(walk.modules):
        check_as_imported(own_sources(module))
    return digest


class _Walk:
    """A way through a value that tells the same of the same content.

    Attributes:
        modules: the user's own modules that it met.
        within: the sets and dicts that are being walked through, which have no order to go by.
    """

    def __init__(self, within: frozenset[int] = frozenset()) -> None:
        self._hash = hashlib.sha256()
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []  # what was met lives on, so that no other gets its id
        self._trail: list[str] = []
        self.modules: set[str] = set()
        self.within = within

    def digest_of(self, value: Any) -> str:
        self.visit(value)
        return self._hash.hexdigest()

    def fail(self, name: str, why: str) -> NoReturn:
        steps = [step for step, _ in itertools.groupby(reversed(self._trail))]
        trail = " of ".join(steps[-DEEPEST:]) or name
        msg = f"{trail} cannot be told from others by what it has: {why}: let the code make it "
        msg += "when it runs, or put the code into a module and give module:NAME"
        raise PluginError(msg)

    def put(self, *parts: Any) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode(errors="surrogatepass")
            self._hash.update(b"%d:" % len(data))
            self._hash.update(data)

    def visit(self, value: Any, name: str = "") -> None:
        """Tell of a value; what was met before is told by its number."""
        atom = atom_of(value)
        if atom is not None:
            self.put(type(value).__name__, atom)
            return
        immutable = type(value) in {tuple, frozenset, types.CodeType}
        if not immutable and id(value) in self._met:
            self.put("met", self._met[id(value)])
            return
        self._kept.append(value)
        if not immutable:
            self._met[id(value)] = len(self._met)
        if name:
            self._trail.append(name)
        _teller(value)(self, value)
        if name:
            self._trail.pop()

    def sequence(self, values: Iterable[Any]) -> None:
        listed = list(values)
        self.put(type(values).__name__, len(listed))
        for value in listed:
            self.visit(value)

    def unordered(self, value: Iterable[Any], items: Mapping[Any, Any] | None = None) -> None:
        """The members of a set, or the keys of a dict with their values, in an order of content."""
        self.put("unordered", type(value).__name__)
        if id(value) in self.within:
            return
        listed = [(self._apart(member, value), member) for member in value]
        for digest, member in sorted(listed, key=lambda pair: pair[0]):
            self.put(digest)
            if items is not None:
                self.visit(items[member], str(member) if isinstance(member, str) else "")

    def _apart(self, member: Any, value: Any) -> str:
        atom = atom_of(member)
        if atom is not None:
            return f"{type(member).__name__} {atom}"
        walk = _Walk(self.within | {id(value)})
        walk._trail = self._trail[:]
        digest = walk.digest_of(member)
        self._kept.append(walk)
        self.modules |= walk.modules
        return digest

    def array(self, value: Any) -> None:
        if value.dtype.hasobject:
            self.put("array", value.shape)
            self.visit(value.tolist())
        else:
            self.put("array", repr(value.dtype), value.shape)
            self.put(np.ascontiguousarray(value).tobytes())
        if type(value) not in {np.ndarray, np.memmap}:
            self.visit(type(value))
            self._attributes(value)

    def code(self, code: types.CodeType) -> None:
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        self.put("code", counts, code.co_code, code.co_exceptiontable)
        self.put(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        line = code.co_firstlineno if "__firstlineno__" in code.co_names else None  # of a class
        self.sequence(
            None if type(part) is int and part == line else part for part in code.co_consts
        )

    def function(self, function: types.FunctionType) -> None:
        module = function.__globals__.get("__name__") or ""
        library = library_of(module)
        self.put("function", library)
        if library:
            self.put(function.__qualname__)
            if look_up(module, function.__qualname__) is function:
                return
        else:
            self._note(module)
        self._trail.append(function.__name__)
        self.code(function.__code__)
        self.visit([function.__defaults__, function.__kwdefaults__, vars(function)])
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=False
        ):
            self.put(name)
            self._cell(cell, name)
        if not library:
            self._globals(function)
        self._trail.pop()

    def _cell(self, cell: types.CellType, name: str) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # what is defined later
            self.put("empty")
        else:
            self.visit(value, name)

    def _globals(self, function: types.FunctionType) -> None:
        names, imports = uses(function.__code__)
        hidden = hides(names, imports)
        if hidden and not library_of(function.__module__):
            why = f"it reads globals through {hidden[0]}, where a change would not be seen"
            self.fail(function.__name__, why)
        for name in names:
            self.put(name)
            if name in function.__globals__:
                self.visit(function.__globals__[name], name)
            else:
                self.put("builtin" if hasattr(builtins, name) else "missing")
        package = function.__globals__.get("__package__") or ""
        for name, level, parts in imports:
            base = absolute_name(name, level, package)
            for module in (base, *(f"{base}.{part}" for part in parts)):
                self._sources(module)

    def module(self, module: types.ModuleType) -> None:
        name = module.__name__
        self.put("module", name, library_of(name))
        self._sources(name)

    def _sources(self, name: str) -> None:
        for module, source in own_sources(name).items():
            self.put(module, source)
        self._note(name)

    def _note(self, module: str) -> None:
        if find_own(module) is not None:
            self.modules.add(module)

    def a_class(self, kind: type) -> None:
        library = library_of(kind.__module__)
        self.put("class", library)
        if library and "<locals>" not in kind.__qualname__:
            self.put(kind.__module__, kind.__qualname__)
            return
        self._note(kind.__module__)
        self.put(kind.__name__)
        self._trail.append(kind.__name__)
        self.sequence((type(kind), *kind.__bases__))
        for name in sorted(vars(kind).keys() - SKIPPED):
            self.put(name)
            self.visit(vars(kind)[name], name)
        self._trail.pop()

    def builtin(self, function: types.BuiltinFunctionType) -> None:
        self.put("builtin", function.__qualname__)
        owner = cast("Any", function.__self__)
        if owner is None or isinstance(owner, types.ModuleType):
            self.put(function.__module__)
        else:
            self.visit(owner)

    def instance(self, value: Any) -> None:
        kind = cast("type[Any]", type(value))
        module, name = (getattr(value, part, None) for part in ("__module__", "__qualname__"))
        if library_of(module) and isinstance(name, str) and look_up(module, name) is value:
            self.put("name", library_of(module), module, name)  # a function of Cython, say
            return
        self.visit(kind)
        stands_for = getattr(kind, "__fingerprint__", None)
        if stands_for is not None:
            self.visit(stands_for(value), kind.__name__)
            return
        library = library_of(kind.__module__)
        if library and kind.__module__.partition(".")[0] != "rfa":
            self._reduced(value)
            return
        for base in CONTENT:
            if isinstance(value, base):
                self.visit(base(cast("Any", value)))
        if reduces(kind):
            self._reduced(value)
        self._attributes(value)

    def _attributes(self, value: Any) -> None:
        self._trail.append(type(value).__name__)
        for name, part in sorted(attributes_of(value).items()):
            self.put(name)
            self.visit(part, name)
        self._trail.pop()

    def _reduced(self, value: Any) -> None:
        """What pickle and copy would make a value from."""
        name = type(value).__name__
        try:
            parts = reduction_of(value)
        except Exception as error:  # noqa: BLE001 it is others' code, and the message says what it says
            self.fail(name, f"{error}")
        if isinstance(parts, str):
            self.put(parts)
            return
        make, arguments, state, values, items = (*parts, None, None, None)[:5]
        self.visit(make)
        self.visit([arguments, state], name)
        self.visit([list(values or ()), dict(items or ())], name)


def _parts(*names: str) -> Callable[[_Walk, Any], None]:
    """Tell of a value by some of its attributes."""

    def tell(walk: _Walk, value: Any) -> None:
        walk.put(type(value).__name__)
        for name in names:
            walk.visit(getattr(value, name))

    return tell


def _descriptor(walk: _Walk, value: Any) -> None:
    walk.put(type(value).__name__, value.__name__)


def _ufunc(walk: _Walk, value: Any) -> None:
    walk.put("ufunc", value.__name__)
    if getattr(np, value.__name__, None) is not value:
        walk.fail(value.__name__, "it is a ufunc of its own, which does not show its function")


_EXACT: dict[Any, Callable[[_Walk, Any], None]] = {
    tuple: _Walk.sequence,
    list: _Walk.sequence,
    set: _Walk.unordered,
    frozenset: _Walk.unordered,
    dict: lambda walk, value: walk.unordered(value, value),
    types.MappingProxyType: lambda walk, value: walk.visit(dict(value)),
}
_KINDS: tuple[tuple[Any, Callable[[_Walk, Any], None]], ...] = (
    (type, _Walk.a_class),
    (types.FunctionType, _Walk.function),
    (types.CodeType, _Walk.code),
    (types.ModuleType, _Walk.module),
    (types.BuiltinFunctionType, _Walk.builtin),
    (types.MethodType, _parts("__func__", "__self__")),
    (np.ndarray, _Walk.array),
    (np.ufunc, _ufunc),
    (functools.partial, _parts("func", "args", "keywords", "__dict__")),
    ((staticmethod, classmethod), _parts("__func__")),
    (property, _parts("fget", "fset", "fdel")),
    (functools.cached_property, _parts("func")),
    (type(functools.cache(len)), _parts("__wrapped__")),
    ((types.MemberDescriptorType, types.GetSetDescriptorType), _descriptor),
    ((types.WrapperDescriptorType, types.MethodDescriptorType), _descriptor),
)


def _teller(value: Any) -> Callable[[_Walk, Any], None]:
    """What tells of a value of its kind."""
    exact = _EXACT.get(type(value))
    if exact is not None:
        return exact
    return next((tell for kind, tell in _KINDS if isinstance(value, kind)), _Walk.instance)
