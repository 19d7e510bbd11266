"""What the sources may not hold, what the errors are, and what no repr shows."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.secagg import errors
from rfa.secagg.device.machine import Device
from rfa.secagg.device.memory import Memory
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.fixed_point import Contribution, Encoding
from rfa.secagg.messages import round as messages
from rfa.secagg.messages.opening import OpenRound
from tests.secagg.samples import SAMPLES

FOLDER = Path(errors.__file__).parent
SOURCES = sorted(FOLDER.rglob("*.py"))
MODULES = {
    "random",
    "numpy.random",
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "uuid",
    "logging",
    "warnings",
    "torch",
}
"""Generators that are not for secrets, formats that run code, and ways to tell what is secret."""
NAMES = {"eval", "exec", "compile", "print", "input", "breakpoint", "__import__"}
ATTRIBUTES = {"random", "default_rng", "RandomState", "stdout", "stderr"}


def imported(node: ast.AST) -> list[str]:
    """The modules that a node imports, and what it takes from them."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        taken = [f"{node.module}.{alias.name}" for alias in node.names]
        return [node.module or "", *taken]
    return []


def faults(tree: ast.AST) -> Iterator[str]:
    """What a source holds that it may not."""
    for node in ast.walk(tree):
        for module in imported(node):
            if any(module == one or module.startswith(f"{one}.") for one in MODULES):
                yield f"import of {module}"
        if isinstance(node, ast.Name) and node.id in NAMES:
            yield f"use of {node.id}"
        if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            yield f"use of .{node.attr}"
        if isinstance(node, ast.Assert):
            yield "assert"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_sources_hold_nothing_that_is_unsafe(path: Path) -> None:
    assert not set(faults(ast.parse(path.read_text("utf-8"))))


SEAM = {"rfa._checks", "rfa._lazy", "rfa._types", "rfa.errors", "rfa.oracle"} | {
    "rfa.radii",
    "rfa.privacy",
    "rfa.privacy.zcdp",
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_sources_import_nothing_of_rfa_but_the_seam(path: Path) -> None:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    ours = {module for module in modules if module.partition(".")[0] == "rfa"}
    assert {module for module in ours if not module.startswith("rfa.secagg")} <= SEAM


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_digests_and_keys_are_made_in_the_transcript_only(path: Path) -> None:
    """So that all labels are in one place, and no two are the same."""
    tree = ast.parse(path.read_text("utf-8"))
    made = [
        call.args
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in {"digest", "derive_key"}
    ]
    if path.name != "transcript.py":
        assert not made
        assert not {"hashlib", "HKDF"} & {getattr(node, "id", "") for node in ast.walk(tree)}
        return
    labels = [arg.value for args in made for arg in args[:2] if isinstance(arg, ast.Constant)]
    assert len(made) == len(labels) == len(set(labels)) == 29


def test_all_sources_are_looked_at() -> None:
    wanted = {"machine.py", "vault.py", "masks.py", "gaussian.py", "noise.py", "fixed_point.py"}
    assert wanted < {path.name for path in SOURCES}


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import random", "import of random"),
        ("from random import choice", "import of random"),
        ("import numpy.random as r", "import of numpy.random"),
        ("from numpy import random", "import of numpy.random"),
        ("from numpy.random import default_rng", "import of numpy.random"),
        ("import numpy as np\nnp.random.rand()", "use of .random"),
        ("def f():\n    import pickle", "import of pickle"),
        ("import logging.config", "import of logging.config"),
        ("eval('1')", "use of eval"),
        ("x = exec", "use of exec"),
        ("print(1)", "use of print"),
        ("import sys\nsys.stderr.write('')", "use of .stderr"),
        ("assert x", "assert"),
    ],
)
def test_the_look_at_sources_finds_what_is_unsafe(source: str, fault: str) -> None:
    assert fault in list(faults(ast.parse(source)))


def test_safe_sources_pass_the_look() -> None:
    safe = "import os, hashlib\nimport numpy as np\nos.urandom(3)\nrandomize = np.zeros(3)"
    assert not list(faults(ast.parse(safe)))


def drawn_tree() -> list[tuple[str, str]]:
    """Each error in the drawing of the module's docstring, with its parent."""
    found: list[tuple[str, str]] = []
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ((?:[│ ]   )*)(├── |└── )?(\w+Error)\b", line)
        if match:
            depth = len(match[1]) // 4 + bool(match[2])
            path = [*path[:depth], match[3]]
            found.append((match[3], path[-2] if depth else "RfaError"))
    return found


def test_the_errors_are_those_that_are_drawn() -> None:
    """Each with its parent, in the same order; other parents are of other trees."""
    classes = [one for _, one in inspect.getmembers(errors, inspect.isclass)]
    contribution = [one for one in classes if one.__module__ == errors.__name__]
    contribution.sort(key=lambda one: inspect.getsourcelines(one)[1])
    assert [(one.__name__, one.__bases__[0].__name__) for one in contribution] == drawn_tree()
    assert len(contribution) == len(set(drawn_tree())) > 25
    assert all(issubclass(one, errors.SecAggError) for one in contribution)


def test_every_error_says_what_it_is() -> None:
    for name, _ in drawn_tree():
        assert (getattr(errors, name).__doc__ or "").endswith(".")


CANARY = bytes(range(0xC0, 0xE0))
WORDS = np.frombuffer(CANARY, "<u4")
NUMBER = int.from_bytes(CANARY[:16], "little")


def shows(text: str) -> bool:
    """Whether a text holds the canary, or 4 bytes of it, in any form."""
    raw = repr(CANARY)[2:-1]
    forms = [CANARY.hex(), raw, str(list(CANARY))[1:-1], str(NUMBER), str(int(WORDS[0]))]
    pieces = [CANARY[at : at + 4] for at in range(28)]
    forms += [piece.hex() for piece in pieces] + [repr(piece)[2:-1] for piece in pieces]
    forms += [str(float(one)) for one in WORDS.view("<f4")]
    forms += re.findall(r"\d\.\d{4,}", repr(WORDS.view("<f4")))
    return any(form in text for form in forms)


def canary_of(value: Any) -> Any:
    """The canary in the shape of a value."""
    array: Any = value
    if isinstance(value, np.ndarray):
        return WORDS.view(array.dtype)
    if isinstance(value, tuple):
        return tuple(canary_of(one) for one in array[:1]) or (CANARY,)
    return NUMBER if isinstance(value, int) else CANARY


SECRET = {
    "ShareKeys": {"sealed"},
    "SumRequest": {"sealed", "v"},
    "MaskedInput": {"tail", "words"},
    "Unmask": {"sealed"},
    "FirstSum": {"v"},
    "FirstInput": {"sealed", "tail", "words"},
    "UnmaskShares": {"shares"},
    "OpenFirstSum": {"first"},
    "Memory": {
        *("sealing", "masks", "seeds", "rounding", "noise", "incoming", "shares", "reply"),
        "ahead",
    },
}
"""The fields that no repr shows."""
PUBLIC = {
    *(
        "session",
        "round",
        "queries",
        "dim",
        "metrics",
        "max_share",
        "server_model",
        "statistics",
        "equal_weights",
        "basis",
        "noise",
        "fast",
        "ahead",
        "block",
        "levels",
        "keys",
        "parameters",
    ),
    *("nonce", "leaves", "commitments", "masked_sum", "vector", "nu", "mass", "alive"),
    *("survivors", "complaints"),
    *("signature", "signatures", "device", "due", "opening", "advert", "roster", "context"),
    *("asked", "signed", "request", "rho", "charged"),
}


@pytest.mark.parametrize("sample", [*SAMPLES, Memory()], ids=lambda one: type(one).__name__)
def test_no_message_and_no_memory_shows_secrets(sample: Any) -> None:
    secret = SECRET.get(type(sample).__name__, set[str]())
    names = {one.name for one in dataclasses.fields(sample)}
    assert names - secret <= PUBLIC, "a new field is secret or public"
    hidden = {name: canary_of(getattr(sample, name)) for name in secret}
    changed = dataclasses.replace(sample, **hidden)
    assert not shows(repr(changed))
    assert not shows(str(changed))


def test_the_canary_is_seen_where_it_is_shown() -> None:
    for shown in (CANARY, CANARY.hex(), list(CANARY), NUMBER, WORDS):
        assert shows(repr(shown))
    assert shows(repr(WORDS.view("<f4")))
    assert shows(repr(WORDS.view("<f4").tolist()))
    assert shows(repr(messages.SurvivorSignature(bytes(16), 1, CANARY * 2)))


def test_no_device_shows_its_secrets() -> None:
    contribution = Contribution(WORDS.view("<f4").copy(), 0.5, (12345.678,))
    identity = Identity(CANARY, {1: bytes(32)})
    profile = Profile(1, identity=identity)
    device = Device(
        contribution, profile, rounding=CANARY, entropy=lambda size: (CANARY * 3)[:size]
    )
    device.receive(OpenRound(bytes(16), 1, 1, 8, 1, 0.0, 1, 31, 0, bytes(32)).encode())
    part = Encoding(3).encode(contribution, np.zeros(0, np.float32), 1.0, CANARY[:16])
    assert device.memory.masks == (CANARY,)
    secrets = [str(value) for value in (*part.tail, *part.words.tolist()) if value > 9999]
    for one in (device, device.memory, identity, profile, contribution, part):
        for text in (repr(one), str(one), f"{one}"):
            assert not shows(text)
            assert "12345" not in text
            assert not any(secret in text for secret in secrets)
