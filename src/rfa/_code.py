"""Code and objects as Python has them: whose they are, what they have, their source."""

from __future__ import annotations

import ast
import collections
import copyreg
import dis
import functools
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any, TypeAlias, cast

import numpy as np

from rfa._sources import find_own, quietly, spec_of_loaded
from rfa.errors import PluginError

READS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
SKIPPED = {
    "__abstractmethods__", "__annotate_func__", "__annotations__", "__annotations_cache__",
    "__classcell__", "__dataclass_fields__", "__dataclass_params__", "__dict__", "__doc__",
    "__firstlineno__", "__module__", "__orig_bases__", "__parameters__", "__qualname__",
    "__slotnames__", "__static_attributes__", "__type_params__", "__weakref__", "_abc_impl",
}  # fmt: skip
"""What a class has from Python, or follows from the rest of it (a dataclass from its methods)."""
CONTENT = (str, bytes, int, float, complex, tuple, list, dict, set, frozenset)
"""Classes whose values have content besides their attributes."""
REDUCES = ("__reduce__", "__reduce_ex__", "__getstate__")
"""Methods that tell pickle what to make a value from."""
HIDING = {"globals", "eval", "exec", "__main__"}
"""What code reads globals through without their names."""
Imports: TypeAlias = tuple[tuple[str, int, tuple[str, ...]], ...]
"""Imported modules: a name, the number of dots before it, and the names taken from it."""
_loaded: dict[str, tuple[ModuleSpec, bytes]] = {}
"""How a module was imported, and its source when we first saw it imported so."""


def library_of(module: Any) -> str:
    """The library that a module belongs to, with its version where it tells it; "" for one's own.

    The version of rfa stands beside each run already.
    """
    if not isinstance(module, str):  # classes of compiled code may have no module
        return "builtins" if module is not None else ""
    first = module.partition(".")[0]
    if module in {"", "__main__"} or find_own(module) is not None:
        return ""
    if first == "rfa":
        return first
    version = getattr(sys.modules.get(first), "__version__", "")
    return f"{first} {version}" if spec_of_loaded(module) is not None else ""


def look_up(module: Any, name: str) -> Any:
    """What a module has under a name with dots, if anything."""
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def atom_of(value: Any) -> str | bytes | None:
    """What tells a value that has no parts, or None."""
    kind = cast("type[Any]", type(value))
    if kind in {str, bytes}:
        return value
    if kind is int:
        return hex(value)
    if kind in {float, complex, bool, type(None), type(...), type(NotImplemented)}:
        return repr(value)
    if issubclass(kind, np.generic) and not issubclass(kind, np.object_ | np.void):
        return repr(value.dtype).encode() + b" " + value.tobytes()
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):  # its pickle has an address in it
        data = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return f"{value.dtype} {tuple(value.shape)} {value.requires_grad} ".encode() + data
    return repr(value) if issubclass(kind, np.dtype) else None


def attributes_of(value: Any) -> dict[str, Any]:
    """What a value has in its __dict__ and its slots, but what it can make again."""
    kind = cast("type[Any]", type(value))
    state: dict[str, Any] = dict(getattr(value, "__dict__", {}))
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            hidden = slot.startswith("__") and not slot.endswith("__")
            name = f"_{base.__name__.lstrip('_')}{slot}" if hidden else slot
            if name not in {"__dict__", "__weakref__"} and hasattr(value, name):
                state[name] = getattr(value, name)
    made_again = functools.cached_property
    return {
        name: part
        for name, part in state.items()
        if not isinstance(getattr(kind, name, None), made_again)
    }


def reduces(kind: type) -> bool:
    """Whether a library's class that a class extends tells pickle what to make its values from."""
    bases = (base for base in kind.__mro__[1:-1] if library_of(base.__module__))
    return any(name in vars(base) for base in bases for name in REDUCES)


def reduction_of(value: Any) -> Any:
    """What pickle and copy would make a value from: a text, or a function with its arguments."""
    reduce = copyreg.dispatch_table.get(cast("type[Any]", type(value)))
    return reduce(value) if reduce else value.__reduce_ex__(4)


@functools.lru_cache(maxsize=1024)
def uses(code: types.CodeType) -> tuple[tuple[str, ...], Imports]:
    """The globals that code reads, and the modules that it imports with what it takes of them."""
    names, imports = set[str](), set[Any]()
    steps = list(dis.get_instructions(code))
    for level, parts, step in zip(steps, steps[1:], steps[2:], strict=False):
        if step.opname == "IMPORT_NAME":
            imports.add((step.argval, level.argval or 0, tuple(parts.argval or ())))
    names |= {step.argval for step in steps if step.opname in READS}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more, others = uses(inner)
            names.update(more)
            imports.update(others)
    return tuple(sorted(names)), tuple(sorted(imports))


def hides(names: Iterable[str], imports: Imports) -> list[str]:
    """What code with these uses reads globals through without their names, in order."""
    return sorted(HIDING & {*names, *(name for name, _, _ in imports)})


def check_as_imported(sources: Mapping[str, bytes]) -> None:
    """See that this process runs modules as their files are now.

    Raises:
        PluginError: naming a module whose file was changed after it was imported.
    """
    for name, source in sources.items():
        spec = spec_of_loaded(name)
        if spec is None:
            continue
        before = _loaded.get(name)
        if before is None or before[0] is not spec:
            same = _runs(sys.modules[name], source, spec)
        else:
            same = before[1] == source
        if not same:
            msg = f"{name} has changed since it was imported here, so that it would run as it was: "
            msg += f"importlib.reload({name}) and what uses it, or start Python anew"
            raise PluginError(msg)
        _check_as_written(sys.modules[name], source)
        _loaded[name] = spec, source


def _check_as_written(module: types.ModuleType, source: bytes) -> None:
    """See that nobody set a constant or a function of a module to something else.

    Raises:
        PluginError: naming what other processes, which import the file, would not have.
    """
    constants, functions = _written(source)
    now = vars(module)
    changed = [name for name, text in constants if name in now and _shown(now[name]) != text]
    changed += [
        name
        for name in functions
        if isinstance(now.get(name), types.FunctionType) and now[name].__globals__ is not now
    ]
    if changed:
        msg = f"{module.__name__}.{changed[0]} is not what its file says: the processes that do "
        msg += "runs import the file, so change it there, or make it a parameter"
        raise PluginError(msg)


@functools.lru_cache(maxsize=256)
def _written(source: bytes) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The constants of a module, as they are shown, and its functions: those set in one place."""
    tree = quietly(lambda: ast.parse(source))
    if tree is None:
        return (), ()
    once = _set_once(tree)
    constants: list[tuple[str, str]] = []
    functions: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and node.name in once:
            functions.append(node.name)
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            text = quietly(lambda value=node.value: _shown(ast.literal_eval(value)))
            if text is not None and target.id in once:
                constants.append((target.id, text))
    return tuple(constants), tuple(functions)


def _set_once(tree: ast.Module) -> set[str]:
    """Names that a module sets in one place alone, and that no function of it sets as globals."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names.append(node.id)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        if isinstance(node, ast.Global):
            names += 2 * node.names
    counts = collections.Counter(names)
    return {name for name, count in counts.items() if count == 1}


def _shown(value: Any) -> str:
    """A value as text, with its type."""
    return f"{type(value).__name__} {value!r}"


def _runs(module: types.ModuleType, source: bytes, spec: ModuleSpec) -> bool:
    """Whether the functions of a module that was imported are those of its source."""
    if type(spec.loader) is not SourceFileLoader:  # others may compile it in another way
        return True
    code = quietly(lambda: compile(source, spec.origin or "", "exec", dont_inherit=True))
    if code is None:
        return False
    written: dict[str, list[types.CodeType]] = {}
    for inner in _codes(code):
        written.setdefault(inner.co_qualname, []).append(inner)
    for function in _functions(module):
        versions = written.get(function.__code__.co_qualname)
        if versions and not any(_same_code(function.__code__, code) for code in versions):
            return False
    return True


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield part
            yield from _codes(part)


def _functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    """The functions and methods that a module defines and still has."""
    values = list(vars(module).values())
    for kind in values[:]:
        if isinstance(kind, type) and kind.__module__ == module.__name__:
            values += vars(kind).values()
    for value in values:
        function = getattr(value, "__func__", value)
        if isinstance(function, types.FunctionType) and function.__globals__ is vars(module):
            yield function


def _same_code(a: types.CodeType, b: types.CodeType) -> bool:
    """Whether two codes do the same, wherever they were written."""
    if (a.co_code, a.co_names, a.co_varnames) != (b.co_code, b.co_names, b.co_varnames):
        return False
    return len(a.co_consts) == len(b.co_consts) and all(map(_same, a.co_consts, b.co_consts))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, types.CodeType) and isinstance(b, types.CodeType):
        return _same_code(a, b)
    return type(a) is type(b) and (a == b or repr(a) == repr(b))
