"""The reference is complete: every name, command, setting, error, message and variable is in it."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
from click import Group

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
pytest.importorskip("torch", reason="needs the lab: pip install 'rfa[lab]'")

from rfa.aggregators.registry import ENTRIES
from rfa.lab.attacks.registry import BUILT_IN, OF_SUMS, OF_TASKS, POISONS
from rfa.lab.settings.parameters import PARAMETERS
from rfa.lab.settings.settings import FIELDS
from rfa.lab.tasks.registry import TASKS
from rfa.secagg.messages.opening import Message
from tests.test_errors import defined
from tests.test_package import PUBLIC
from tests.website.pages import ROOT
from website.commands import all_commands, commands_page, prose
from website.errors import errors_page, find_errors
from website.lab_pages import names_page, settings_page
from website.markdown import mark_names, table
from website.messages import described_messages, messages_page
from website.pictures import FOLDER, PICTURES, inline

REFERENCE = ROOT / "docs" / "reference"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in REFERENCE.glob("*.md")}
DOCUMENTED = re.findall(r"^::: ([\w.]+)$", "\n".join(PAGES.values()), re.MULTILINE)
NAMES = [(module, name) for module, names in PUBLIC.items() for name in names.split()]


def resolve(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_every_public_name_has_a_place(module: str, name: str) -> None:
    """Its own place, or a line on the page of its module that leads to where it is defined."""
    if f"{module}.{name}" in DOCUMENTED:
        return
    room = module.removesuffix(".tracking").removesuffix(".clear").removeprefix("rfa.")
    assert re.search(rf"`(\w+\.)*{name}`", PAGES[room]), f"{module}.{name} is not on its page"
    meant = resolve(f"{module}.{name}")
    assert any(resolve(path) is meant for path in DOCUMENTED if path.endswith(f".{name}"))


def test_nothing_is_documented_twice_or_does_not_exist() -> None:
    assert len(DOCUMENTED) == len(set(DOCUMENTED))
    for path in DOCUMENTED:
        assert resolve(path) is not None


def test_every_command_and_option_is_listed() -> None:
    page = commands_page()
    listed = dict(all_commands())
    assert ("rfa", "runs", "export") in listed
    for names, command in listed.items():
        assert f"\n## {' '.join(names)}\n" in page
        section = page.partition(f"\n## {' '.join(names)}\n")[2].partition("\n## ")[0]
        trains = "[settings of a run](settings.md) are options, too" in section
        assert trains == (names[1] in {"run", "tune", "arena"}), names
        for option in command.params:
            setting = trains and option.name in {*FIELDS, *PARAMETERS}
            if not setting and option.param_type_name == "option":
                assert max(option.opts, key=len) in section, (names, option.opts)
        assert isinstance(command, Group) or "```text\nrfa " in section


def test_a_help_text_keeps_its_blocks() -> None:
    text = "What it does.\n\n    \b\n    An example:\n      rfa run TASK\n    "
    assert prose(text) == "What it does.\n\nAn example:\n\n```text\nrfa run TASK\n```\n"


def test_every_setting_and_every_name_is_listed() -> None:
    settings, names = settings_page(), names_page()
    for name in (*FIELDS, *PARAMETERS):
        assert f"| `{name}` |" in settings
    for name in (*TASKS, *ENTRIES, *BUILT_IN, *POISONS, *OF_TASKS, *OF_SUMS):
        assert f"| `{name}` |" in names


def test_every_error_is_listed_below_its_parent() -> None:
    found, page = find_errors(), errors_page()
    assert {error.__name__ for error in defined()} == set(found)
    depths = re.findall(r"^\| ((?:&emsp;)*)(?:└ )?`(\w+)` \|", page, re.MULTILINE)
    assert sorted(name for _, name in depths) == sorted(found)
    above: list[str] = []
    for indent, name in depths:
        del above[len(indent) // len("&emsp;") :]
        assert not above or above[-1] in found[name].bases
        above.append(name)


def test_every_message_is_listed_with_every_field() -> None:
    page = messages_page()
    described = described_messages()
    assert [kind.KIND for kind in described] == [kind.KIND for kind in Message.__subclasses__()]
    for words, kind in zip(described, Message.__subclasses__(), strict=True):
        assert words.__name__ == kind.__name__
        assert len(words.LAYOUT) == len(kind.LAYOUT)
        assert all(
            (isinstance(text, str) and "byte" in text) or "list" in text for text in words.LAYOUT
        )
        assert f"## {kind.__name__}\n\nKind {kind.KIND}, " in page
    assert "Kind 1, server to device" in page
    assert "Kind 2, device to server" in page
    assert "| `queries` | 4 bytes |" in page


def test_every_variable_is_listed() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    known = set(re.findall(r"\bRFA_[A-Z]+\b", sources))
    assert known == {"RFA_DATA", "RFA_CACHE", "RFA_HOME"}
    assert all(f"| `{name}` |" in PAGES["environment"] for name in known)


def test_cells_of_a_table_cannot_break_it() -> None:
    assert table(("a",), [("x | y\nz",)]) == "| a |\n| --- |\n| x \\| y z |\n"
    assert table(("a",), [("`x|y` [default: 1]",)]).endswith("| `x|y` \\[default: 1] |\n")


def test_names_stay_whole_and_sentences_in_code_do_not() -> None:
    html = "<td><code>--noise-cohort INTEGER</code> or <code>all N nodes refuse</code></td>"
    marked = mark_names(html)
    assert '<code class="name">--noise-cohort INTEGER</code>' in marked
    assert "<code>all N nodes refuse</code>" in marked


def test_pictures_become_part_of_a_page() -> None:
    page = inline('<p><img alt="x" src="../assets/pictures/round.svg" /></p>')
    assert page.count("<svg") == len(["wide", "narrow"])
    assert '<span class="picture narrow">' in page
    assert "<style>" not in page
    assert "<img" not in page


@pytest.mark.parametrize("name", [name for name in PICTURES if not name.endswith("-narrow")])
def test_every_picture_has_a_form_that_fits_a_phone(name: str) -> None:
    kept = (FOLDER / f"{name}-narrow.svg").read_text(encoding="utf-8")
    found = re.search(r'width="(\d+)" role', kept)
    assert found
    assert int(found[1]) <= 375
    assert '<span class="picture narrow">' in inline(
        f'<img alt="x" src="assets/pictures/{name}.svg">'
    )
