"""The source of a user's own modules, with all that they import: read, never run.

A module is the user's own if it is neither of Python's library, nor of rfa, nor installed into
site-packages; an editable installation is the user's own.

>>> own_sources("json")
{}
"""

from __future__ import annotations

import ast
import functools
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, cast

INSTALLED = {"site-packages", "dist-packages"}
"""Folders of what was installed."""
NEVER = {"", "__main__"}
"""A name that is no module that can be imported."""


def own_sources(module: str) -> dict[str, bytes]:
    """The source of a user's module and of all modules of the user's own that it imports.

    Also imports inside functions count, and `import_module("name")`. A module that is missing or
    cannot be read has no source here; importing it raises the error.

    Returns:
        The source of each by its name, in order; empty for a module that is not the user's own.
    """
    sources: dict[str, bytes] = {}
    waiting, met = [module], set[str]()
    while waiting:
        name, star, _ = waiting.pop().partition(".*")
        spec = None if name + star in met else find_own(name)
        met.add(name + star)
        if spec is None:
            continue
        source = _read(spec)
        if star:
            waiting += [f"{name}.{part}" for part in _listed(source or b"")]
            continue
        waiting.append(name.rpartition(".")[0])
        if source is not None:
            sources[name] = source
            if spec.origin and spec.origin.endswith(".py"):
                waiting += _imported(source, name, spec.submodule_search_locations is not None)
    return dict(sorted(sources.items()))


def find_own(name: str) -> ModuleSpec | None:
    """How a module of the user's own is imported, or None if it is another's, or not there."""
    if name in NEVER or not name.replace(".", "").isidentifier():
        return None
    spec = spec_of_loaded(name) or _search(name)
    return spec if spec is not None and _is_own(spec) else None


def own_modules() -> list[str]:
    """The names of the user's own modules that this process has imported."""
    specs = {name: spec_of_loaded(name) for name in list(sys.modules) if name not in NEVER}
    return sorted(name for name, spec in specs.items() if spec is not None and _is_own(spec))


def search_working_directory() -> None:
    """Let modules be imported from the working directory, wherever Python was started."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def spec_of_loaded(name: str) -> ModuleSpec | None:
    """How a module was imported that this process has."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec if isinstance(spec, ModuleSpec) else None


def _search(name: str) -> ModuleSpec | None:
    """What an import would find; unlike `importlib.util.find_spec` it does not run the parents."""
    parent, path = name.rpartition(".")[0], None
    if parent:
        above = find_own(parent)
        if above is None or above.submodule_search_locations is None:
            return None
        path = list(above.submodule_search_locations)
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except Exception:  # noqa: BLE001, S112 others' finders may do anything
            continue
        if spec is not None:
            return spec
    return _namespace(name, path or ())


def _namespace(name: str, path: Iterable[str]) -> ModuleSpec | None:
    """A folder without a source within a package, which Python finds only if its parent was run."""
    folders = [Path(part) / name.rpartition(".")[2] for part in path]
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(folder) for folder in folders if folder.is_dir()]
    return spec if spec.submodule_search_locations else None


def _is_own(spec: ModuleSpec) -> bool:
    if spec.origin in {"built-in", "frozen"} or spec.name.partition(".")[0] == "rfa":
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return bool(places) and not any(_is_library(path) for path in places)


@functools.cache
def _is_library(path: str) -> bool:
    places = {Path(path), Path(path).resolve()}
    return not INSTALLED.isdisjoint(Path(path).parts) or any(
        place.is_relative_to(library) for place in places for library in _standard_library()
    )


@functools.cache
def _standard_library() -> tuple[Path, ...]:
    paths = {Path(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib")}
    return tuple(paths | {path.resolve() for path in paths})


def _read(spec: ModuleSpec) -> bytes | None:
    try:
        return cast("Any", spec.loader).get_data(spec.origin)
    except Exception:  # noqa: BLE001 others' loaders may do anything; a namespace has no source
        return None


@functools.lru_cache(maxsize=1024)
def _imported(source: bytes, name: str, is_package: bool) -> tuple[str, ...]:
    """The names of all modules that a source may import, and of some that are none."""
    package = name if is_package else name.rpartition(".")[0]
    names: list[str] = []
    for node in ast.walk(_parse(source) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute_name(node.module or "", node.level, package)
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call):
            names += _called(node, package)
    return tuple(names)


def absolute_name(name: str, level: int, package: str) -> str:
    """The name of a module that is imported with a number of dots by a module of a package."""
    if not level:
        return name
    above = package.split(".")[: len(package.split(".")) - level + 1]
    return ".".join([*above, name]) if name else ".".join(above)


def _listed(source: bytes) -> Iterator[str]:
    """What `from module import *` takes of a module that says it: the texts in its __all__."""
    tree = _parse(source)
    for node in tree.body if tree else ():
        if isinstance(node, ast.Assign) and "__all__" in map(ast.unparse, node.targets):
            parts = (part for part in ast.walk(node.value) if isinstance(part, ast.Constant))
            yield from (str(part.value) for part in parts)


def _called(node: ast.Call, package: str) -> list[str]:
    """The module that a call of import_module or __import__ names, if it is one."""
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    first = node.args[0] if node.args else None
    if name not in {"import_module", "__import__"} or not isinstance(first, ast.Constant):
        return []
    text = str(first.value)
    bare = text.lstrip(".")
    return [absolute_name(bare, len(text) - len(bare), package)]


def _parse(source: bytes) -> ast.Module | None:
    return quietly(lambda: ast.parse(source))


def quietly(work: Callable[[], Any]) -> Any:
    """What comes of a source, or None if it is broken; importing it will tell of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return work()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
