"""Progress: what bars show, and where."""

from __future__ import annotations

import io
import itertools
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rfa.lab.runs import progress
from rfa.lab.runs.jobs import Work
from rfa.lab.runs.screens import Lines, Notebook, Screen, Shown, Terminal, choose_screen
from rfa.lab.settings.settings import Settings
from tests.lab.runs.test_run import do


class Display:
    """What a notebook has in the place of a screen: the pictures that it was sent."""

    def __init__(self) -> None:
        self.pictures: list[Any] = []
        self.ids: list[bool] = []

    def __call__(self, picture: Any, *, display_id: bool) -> Display:
        self.ids.append(display_id)
        self.pictures.append(picture)
        return self

    def update(self, picture: Any) -> None:
        self.pictures.append(picture)

    @property
    def texts(self) -> list[str]:
        return [repr(picture) for picture in self.pictures]

    @property
    def pages(self) -> list[str]:
        return [picture._repr_html_() for picture in self.pictures]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Kept(Screen):
    """Keeps what it is to show."""

    def __init__(self) -> None:
        self.shown: list[Shown] = []
        self.said: list[str] = []

    def show(self, shown: Shown) -> None:
        self.shown.append(shown)

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_bar_in_a_notebook(tmp_path: Path) -> None:
    display, clock = Display(), Clock()
    with Notebook(display, clock) as screen:
        screen.show(Shown("<RFA>", text="reading & more"))
        clock.now = 3.0
        screen.show(Shown("<RFA>", 10, 50, "10/50"))
        clock.now = 5.0
        screen.show(Shown("<RFA>", 20, 50, "20/50", "accuracy 81.0%, loss 0.62"))
    assert display.ids == [True], "one output, which is updated"
    assert display.pages[0].startswith("&lt;RFA&gt; <progress></progress>")
    assert "reading &amp; more" in display.pages[0]
    assert '<progress value="20" max="50"></progress>' in display.pages[2]
    assert display.texts == [
        "<RFA>, reading & more",
        "<RFA>, 10/50",
        "<RFA>, 20/50, accuracy 81.0%, loss 0.62, 0:06 left",  # 30 rounds at 5 a second
        "",
    ]
    assert display.pages[-1] == "", "nothing stays"


def test_a_notebook_gets_five_pictures_a_second() -> None:
    display, clock = Display(), Clock()
    with Notebook(display, clock) as screen:
        screen.show(Shown("run", text="reading"))
        screen.show(Shown("run", text="starting the workers"))  # what is prepared is always shown
        for done in range(1001):  # in a second
            clock.now = done / 1000
            screen.show(Shown("run", done, 1000, f"{done}/1000"))
    counts = [int(text) for text in re.findall(r"(\d+)/1000", " ".join(display.texts))]
    assert counts[0] == 0
    assert all(200 <= later - count <= 201 for count, later in itertools.pairwise(counts))
    assert len(display.pictures) == 2 + len(counts) + 1


def test_a_run_that_never_began_leaves_no_output() -> None:
    display = Display()
    with Notebook(display):
        pass
    assert display.pictures == []


def test_lines_are_those_that_matter(capsys: pytest.CaptureFixture[str]) -> None:
    for bar in (True, False):
        screen = Lines(bar=bar)
        screen.show(Shown("run", 1, 4, "1/4", "corrupted 1/2"))
        screen.show(Shown("run", 2, 4, "2/4", "accuracy 50.0%", mark=True))
        screen.say("a problem")
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines() == ["run, 2/4, accuracy 50.0%"] * bar + ["a problem"]


def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()

    def console(**_: Any) -> Console:
        return Console(file=written, force_terminal=True, width=100)

    monkeypatch.setattr("rich.console.Console", console)
    with Terminal() as screen:
        screen.show(Shown("[RFA]", text="reading"))
        screen.show(Shown("[RFA]", 10, 50, "10/50", "loss 0.62"))
        screen.say("a problem")
    assert "[RFA]" in written.getvalue()
    assert "10/50" in written.getvalue()
    assert "loss 0.62" in written.getvalue()
    assert "a problem" in written.getvalue()


def shell(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let IPython have a shell of a class that derives from others by name."""
    kind: type = object
    for name in reversed(names):
        kind = type(name, (kind,), {})
    module = types.ModuleType("IPython")
    vars(module)["get_ipython"] = lambda: kind() if names else None
    display = types.ModuleType("IPython.display")
    vars(display)["display"] = Display()
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", display)


def test_the_screen_is_the_one_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for names in ((), ("TerminalInteractiveShell",)):
        shell(monkeypatch, *names)
        assert type(choose_screen(None)) is Lines
    for names in (("ZMQInteractiveShell",), ("Shell", "ZMQInteractiveShell")):  # Jupyter, Colab
        shell(monkeypatch, *names)
        assert type(choose_screen(None)) is type(choose_screen(True)) is Notebook
        assert type(choose_screen(False)) is Screen
    monkeypatch.delitem(sys.modules, "IPython")
    assert type(choose_screen(None)) is Lines
    assert "IPython" not in sys.modules
    monkeypatch.setenv("FORCE_COLOR", "1")  # as rich has it
    assert type(choose_screen(None)) is type(choose_screen(True)) is Terminal
    assert type(choose_screen(False)) is Screen


def test_what_the_bar_of_a_run_shows(tmp_path: Path) -> None:
    screen = Kept()
    bar = progress.Bar("RFA", screen)
    row = do(tmp_path, bar, rounds=5, corruption="gaussian", rho=0.2)
    assert bar.began
    assert screen.shown[0].total is None
    counts = [shown.count for shown in screen.shown if shown.total is not None]
    assert counts == ["0/5", "0/5", "1/5", "2/5", "3/5", "4/5", "4/5", "5/5", "5/5"]
    assert all(shown.done == int(shown.count[0]) for shown in screen.shown if shown.count)
    marked = [shown.count for shown in screen.shown if shown.mark and shown.count]
    assert marked == ["0/5", "4/5", "5/5"], "a line for each evaluation"
    accuracy = f"accuracy {row['test_accuracy']:.1%} (honest {row['honest_accuracy']:.1%})"
    words = re.escape(f"{accuracy}, loss {row['train_loss']:.2f}, corrupted ")
    assert re.fullmatch(rf"{words}\d/8", screen.shown[-1].text)
    again = progress.Bar("RFA", screen)
    do(tmp_path, again, rounds=5, corruption="gaussian", rho=0.2)
    assert not again.began


def test_what_the_overview_of_many_runs_shows() -> None:
    runs = [Settings.of("tests.tiny:TASK", seed=seed) for seed in (1, 2)]
    screen = Kept()
    overview = progress.Overview(Work(runs, 3, 30.0, 2), screen)
    assert screen.said == ["2 runs (3 are done already): less than a minute, 2 at once"]
    progress.Overview(Work(runs, 1, 30.0, 2), other := Kept())
    assert other.said == ["2 runs (1 is done already): less than a minute, 2 at once"]
    overview.on_begin(runs[0])
    overview.on_progress(runs[0], 0.5)
    assert (screen.shown[-1].label, screen.shown[-1].count) == ("0/2 runs", "25%")
    assert screen.shown[-1].text == "tests.tiny:TASK rfa"
    overview.on_end(runs[0], "it failed")
    assert screen.shown[-1] == Shown(
        "1/2 runs", screen.shown[-1].done, 2 * screen.shown[-1].done, "50%", "", mark=True
    )
    assert screen.said[1:] == [f"{runs[0].run_name}: it failed"]


CELLS = [
    """
from pathlib import Path
from rfa.lab.runs.callback import Callback
from rfa.lab.runs.progress import choose_progress
from rfa.lab.runs.run import Options, run
from rfa.lab.settings.settings import Settings

class Stop(Callback):
    def on_round(self, run, facts):
        if run.round == 2:
            run.stop("seen enough")

settings = Settings.of("tests.tiny:TASK", rounds=4)
with choose_progress("tiny & small") as bar:
    row = run(settings, Options(Path(OUT), workers=1), [bar, Stop()])
print(row["status"], row["stop_reason"], row["rounds"])
""",
    """
from rfa.lab.runs.jobs import do_work, plan_work
from rfa.lab.runs.progress import choose_overview

work = plan_work([settings], Options(Path(OUT)))
with choose_overview(work) as overview:
    print(do_work(work, Options(Path(OUT)), overview))  # told from threads
""",
]


def test_bars_in_a_real_kernel(tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    sources = [f"OUT = {str(tmp_path)!r}", *CELLS]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    pictures: list[str] = []
    client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3")

    def keep(message: dict[str, Any], *arguments: Any) -> Any:
        if message["msg_type"] in ("display_data", "update_display_data"):
            pictures.append(message["content"]["data"]["text/html"])
        return process(message, *arguments)

    process, client.process_message = client.process_message, keep
    client.execute()
    printed = (r"stopped seen enough 2\n", r"1 run: .*, 1 at once\n{}\n")
    for cell, text in zip(notebook.cells[1:], printed, strict=True):
        (shown,) = [output for output in cell.outputs if output.output_type == "display_data"]
        assert shown.data == {"text/html": "", "text/plain": ""}, "the bar is gone at the end"
        said = [output for output in cell.outputs if output.output_type == "stream"]
        assert {output.name for output in said} == {"stdout"}
        assert re.fullmatch(text, "".join(output.text for output in said))
    assert pictures[0].startswith("tiny &amp; small <progress></progress>")
    assert any('<progress value="0" max="4"></progress>' in picture for picture in pictures)
    assert any("1/1 runs" in picture or "0/1 runs" in picture for picture in pictures)
