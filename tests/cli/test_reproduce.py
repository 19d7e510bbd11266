"""`rfa reproduce`: how much is done is said once."""

from __future__ import annotations

import itertools

import pytest
from click.testing import CliRunner

from rfa.cli.main import main

SCALES = (["--quick"], ["--full"], ["--scale", "horizon"])


@pytest.mark.parametrize("pair", list(itertools.permutations(SCALES, 2)), ids=str)
def test_two_scales_are_refused_and_both_are_named(pair: tuple[list[str], list[str]]) -> None:
    result = CliRunner().invoke(main, ["reproduce", *pair[0], *pair[1], "--list"])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    for arguments in pair:
        assert " ".join(arguments) in result.stderr


def test_one_scale_given_twice_is_refused_if_it_is_another() -> None:
    arguments = ["reproduce", "--scale", "quick", "--scale", "full", "--list"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "--scale quick" in result.stderr
    assert "--scale full" in result.stderr


@pytest.mark.parametrize("arguments", [*SCALES, []], ids=str)
def test_one_scale_is_enough(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, ["reproduce", *arguments, "--list"]).exit_code == 0
