"""Every code block of every page is run, or marked as output, or says why it is not run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rfa.cli.main import main
from tests.website.pages import ROOT, Block, blocks_of, guides, own_pages, same_output

PAGES = [page for page in own_pages() if blocks_of(ROOT / page)]
ALL = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("docs/**/*.md", "*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
LANGUAGES = {"python", "bash", "toml", "json", "text"}
SHELL = {"mkdir", "openssl", "python"}


@pytest.mark.parametrize("page", [*PAGES, *guides()])
def test_every_block_says_what_it_is(page: str) -> None:
    for block in blocks_of(ROOT / page):
        assert block.language in LANGUAGES, f"{page}:{block.line} is a block of {block.language!r}"


@pytest.mark.parametrize("page", ALL)
def test_every_command_of_rfa_on_a_page_exists_with_its_options(page: str) -> None:
    """Whatever is run or not: the command line takes it."""
    for block in blocks_of(ROOT / page):
        if block.language in {"bash", ""}:
            for line in block.code.replace("\\\n", " ").splitlines():
                if line.startswith("rfa ") and "..." not in line:
                    _parse(line, f"{page}:{block.line}")


def _parse(line: str, where: str) -> None:
    words = Block("bash", line, 0, None).commands[0][1:]
    context = click.Context(main)
    command = main.get_command(context, words[0])
    assert command is not None or words[0].startswith("-"), f"{where}: no command {words[0]}"
    if command is not None and not isinstance(command, click.Group):
        try:
            command.make_context(words[0], words[1:], resilient_parsing=True)
        except click.UsageError as error:
            pytest.fail(f"{where}: {line}: {error.message}")


class Script:
    """The blocks of a page, one after the other, as one script in a folder."""

    def __init__(self, page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Begin in an empty folder."""
        self.page, self.folder = page, folder
        self.module = types.ModuleType("__main__")
        self.path = folder / "page.py"
        self.module.__file__ = str(self.path)
        monkeypatch.setitem(sys.modules, "__main__", self.module)
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        monkeypatch.chdir(folder)

    def play(self, block: Block) -> None:
        """Write, run or read a block."""
        if block.file is not None:
            target = self.folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.code, encoding="utf-8")
        if block.language == "toml":
            tomllib.loads(block.code)
        elif block.language == "json":
            json.loads(block.code)
        elif block.language == "python":
            self._python(block)
        elif block.language == "bash" and block.reason is None:
            self._commands(block)

    def _python(self, block: Block) -> None:
        source = "\n" * block.line + block.code
        self.path.write_text(source, encoding="utf-8")
        code = compile(source, str(self.path), "exec")
        if block.file is None and block.reason is None:
            exec(code, vars(self.module))  # noqa: S102

    def _commands(self, block: Block) -> None:
        if block.commands[0][0] in SHELL:
            self._shell(block)
            return
        for words in block.commands:
            if words[:2] == ["flwr", "run"]:
                self._flower(words[2:])
                continue
            assert words[0] == "rfa", f"{self.page}:{block.line}: {words[0]} is not run"
            done = CliRunner().invoke(main, words[1:])
            assert done.exit_code == 0, f"{self.page}:{block.line}: {words}\n{done.output}"
            print(done.output)

    def _shell(self, block: Block) -> None:
        for tool in ("bash", "openssl", "ssh-keygen"):
            if f"{tool} " in f"bash {block.code}" and shutil.which(tool) is None:
                pytest.skip(f"{self.page}:{block.line} needs {tool}")
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(  # noqa: S603
            ["bash", "-eu", "-c", block.code],  # noqa: S607
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{self.page}:{block.line}:\n{done.stderr}"
        print(done.stdout)

    def _flower(self, words: list[str]) -> None:
        """Run the Flower app in this folder on a grid in this process, which needs no Ray."""
        spec = importlib.util.spec_from_file_location("compare", ROOT / "examples" / "compare.py")
        assert spec is not None
        assert spec.loader is not None
        compare: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(compare)
        given = dict(zip(words[3::2], words[4::2], strict=True))
        nodes = re.findall(r"num-supernodes=(\d+)", given["--federation-config"])
        about = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))
        about["tool"]["compare"] = {"nodes": int(nodes[0])}
        changes = tomllib.loads("\n".join(given.get("--run-config", "").split()))
        (self.folder / "my_app" / "__init__.py").touch()
        for t, accuracy in enumerate(compare.run(self.folder, about, **changes)):
            print(f"round {t}: accuracy {accuracy:.1f} %")


def _is_run(block: Block | None) -> bool:
    """Whether what follows a block is what it printed; tables of commands are not compared."""
    if block is None or block.file is not None or block.reason is not None:
        return False
    return block.language == "python" or "flwr run" in block.code


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
    pytest.importorskip("torch", reason="needs the lab: pip install 'rfa[lab]'")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "agg")
    modules = set(sys.modules)
    script, before = Script(page, tmp_path, monkeypatch), None
    for block in blocks_of(ROOT / page):
        if block.language == "text" and block.reason is None and _is_run(before):
            printed = capsys.readouterr().out
            assert same_output(block.code, printed), f"{page}:{block.line} shows\n{block.code}"
        capsys.readouterr() if block.language != "text" else None
        script.play(block)
        before = block
    for name in set(sys.modules) - modules:
        if os.fspath(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
