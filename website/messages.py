"""The page of the messages of the secure sum, made from the layouts in the code."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
import sys
import types
from typing import Any
from unittest import mock

from rfa.secagg.messages import codec, opening
from rfa.secagg.messages import round as messages
from rfa.secagg.messages.stages import Stage
from website.markdown import code, table

INTRO = f"""# Messages of the protocol

Generated from the code. This is version {codec.VERSION} of the protocol. [The secure
sum](../secure-sum.md) explains it, and the [threat model](../threat-model.md) states its
guarantees.

A message is the three bytes `rfa`, one byte for the version, one byte for its kind, three zero
bytes, a session of 16 bytes, and then the fields of its kind in order, with nothing between
them. Integers are unsigned and little-endian. A list begins with its length in 4 bytes, at most
{codec.MANY:,} entries unless a smaller limit is given. Each message has one encoding: a device
or server that receives any other bytes raises a `MessageError`. `tests/secagg/vectors.json`
holds test vectors and `tests/secagg/sessions.json` recorded sessions.

Messages travel in the order of this page. Steps from `SumRequest` on repeat for each masked
sum: one for each query, or two where a limit on shares is set.
"""
FROM_SERVER = set(re.findall(r"^(\w+) +->", messages.__doc__ or "", re.MULTILINE))
"""Messages that the drawing of a round shows on the server's side."""
KINDS = {"<f4": "float32", "<u4": "32-bit words"}


def messages_page() -> str:
    """The page, as Markdown."""
    parts = [INTRO]
    for kind in described_messages():
        name, layout, number = kind.__name__, kind.LAYOUT, kind.KIND
        sender = "server to device" if name in FROM_SERVER else "device to server"
        parts.append(f"\n## {name}\n\nKind {number}, {sender}. {inspect.getdoc(kind)}\n")
        names = [code(field.name) for field in dataclasses.fields(kind)[1:]]
        parts.append(table(("field", "bytes"), zip(names, layout, strict=True)))
    stages = ", ".join(code(stage.name) for stage in Stage)
    return "\n".join(parts) + f"\nStages of a round, for `Moment` and in logs: {stages}.\n"


def described_messages() -> list[Any]:
    """The classes of messages, in the order of the protocol, with layouts that are words.

    The modules of messages are loaded once more, with a codec whose fields are texts.
    """
    codec_in_words = types.ModuleType(codec.__name__)
    vars(codec_in_words).update({**vars(codec), **_WORDS})
    with mock.patch.dict(sys.modules, {codec.__name__: codec_in_words}):
        again, _ = [_load_again(module) for module in (opening, messages)]
    return again.Message.__subclasses__()


def _load_again(module: types.ModuleType) -> Any:
    """Load a module under its own name: what is loaded after it imports from this one."""
    spec = importlib.util.spec_from_file_location(module.__name__, inspect.getfile(module))
    if spec is None or spec.loader is None:
        msg = "the messages of the protocol have no file: install rfa from a clone"
        raise ImportError(msg)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def _many(entry: str, most: int | None = None) -> str:
    return f"a list{_limit(most)}, each entry: {entry}"


def _rows(size: int, most: int | None = None) -> str:
    return f"a list of entries of {size} bytes each{_limit(most)}"


def _record(kind: type[Any], *fields: str) -> str:
    named = zip(dataclasses.fields(kind), fields, strict=True)
    return "; ".join(f"{field.name} ({text})" for field, text in named)


def _group(*fields: str) -> str:
    return ", ".join(fields)


def _array(kind: str) -> str:
    return f"a list of {KINDS[kind]}"


def _limit(most: int | None) -> str:
    return "" if most is None else f", at most {most:,}"


_WORDS: dict[str, object] = {
    "U8": "1 byte",
    "U32": "4 bytes",
    "U64": "8 bytes",
    "U128": "16 bytes",
    "REAL": "float64, 8 bytes",
    "KEY": "32 bytes",
    "fixed": "{} bytes".format,
    "blob": "a list of at most {:,} bytes".format,
    "array": _array,
    "group": _group,
    "many": _many,
    "rows": _rows,
    "record": _record,
}
"""The fields of the codec in words, and what makes others of them."""
