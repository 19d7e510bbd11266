"""The page of the messages of the secure sum, made from the layouts in the code."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

from rfa.secagg.messages import codec
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
FROM_SERVER = {"OpenRound", "Roster", "SumRequest", "SurvivorList", "Unmask"}
PLAIN = {
    "U8": "1 byte",
    "U32": "4 bytes",
    "U64": "8 bytes",
    "U128": "16 bytes",
    "REAL": "float64, 8 bytes",
    "KEY": "32 bytes",
    "DEVICE_KEYS": "the number of a device (8 bytes), its sealing key (32 bytes), a list of mask "
    "keys of 32 bytes each, and its signature (a list of at most 64 bytes; empty for a semi-honest "
    "server)",
}
KINDS = {"<f4": "float32", "<u4": "32-bit words"}


def messages_page() -> str:
    """The page, as Markdown."""
    parts = [INTRO]
    for kind, layout in layouts().items():
        sender = "server to device" if kind.__name__ in FROM_SERVER else "device to server"
        parts.append(
            f"\n## {kind.__name__}\n\nKind {kind.KIND}, {sender}. {inspect.getdoc(kind)}\n"
        )
        names = list(kind.__annotations__)
        parts.append(table(("field", "bytes"), zip(map(code, names), layout, strict=True)))
    stages = ", ".join(code(stage.name) for stage in Stage)
    return "\n".join(parts) + f"\nStages of a round, for `Moment` and in logs: {stages}.\n"


def layouts() -> dict[type[messages.Message], list[str]]:
    """How the fields of each message are encoded, in words, in the order of the protocol."""
    tree = ast.parse(Path(inspect.getfile(messages)).read_text(encoding="utf-8"))
    found: dict[type[messages.Message], list[str]] = {}
    for node in tree.body:
        kind = getattr(messages, node.name, None) if isinstance(node, ast.ClassDef) else None
        if not isinstance(node, ast.ClassDef) or kind not in messages.Message.__subclasses__():
            continue
        for line in node.body:
            if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "LAYOUT":
                assert isinstance(line.value, ast.Tuple)  # noqa: S101
                found[kind] = [_words(field) for field in line.value.elts]
    return found


def _words(field: ast.expr) -> str:
    """What a field is, from the expression that makes it."""
    if isinstance(field, ast.Name):
        return PLAIN[field.id]
    assert isinstance(field, ast.Call)  # noqa: S101
    maker = ast.unparse(field.func)
    if maker == "group":
        return ", ".join(map(_words, field.args))
    if maker == "many":
        most = f", at most {_value(field.args[1]):,}" if len(field.args) > 1 else ""
        return f"a list{most}, each entry: {_words(field.args[0])}"
    return _simple(maker, [_value(argument) for argument in field.args])


def _simple(maker: str, values: list[Any]) -> str:
    """What a field is that is made of bytes."""
    match maker, values:
        case "fixed", [size]:
            return f"{size} bytes"
        case "blob", [most]:
            return f"a list of at most {most:,} bytes"
        case "array", [kind]:
            return f"a list of {KINDS[kind]}"
        case "rows", [size, *most]:
            limit = f", at most {most[0]:,}" if most else ""
            return f"a list of entries of {size} bytes each{limit}"
        case _:
            msg = f"a layout made by {maker} has no words: add them to website/messages.py"
            raise ValueError(msg)


def _value(expression: ast.expr) -> Any:
    """A constant of the module of messages, or simple arithmetic with them."""
    if isinstance(expression, ast.Constant):
        return expression.value
    if isinstance(expression, ast.Name):
        return getattr(messages, expression.id)
    assert isinstance(expression, ast.BinOp)  # noqa: S101
    left, right = _value(expression.left), _value(expression.right)
    return left * right if isinstance(expression.op, ast.Mult) else left // right
