"""What a release is made of: metadata, the citation and the workflow that publishes it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml", reason="reads the files of a release: pip install pyyaml")

import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version() -> None:
    citation = read("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["title"].startswith(PROJECT["name"])
    assert citation["message"]
    assert citation["authors"] == PROJECT["authors"]
    paper = citation["preferred-citation"]
    assert paper["doi"] in PROJECT["urls"]["Paper"]
    assert [author["family-names"] for author in paper["authors"]] == [
        "Pillutla",
        "Kakade",
        "Harchaoui",
    ]


def test_the_metadata_claims_what_is_so() -> None:
    least = PROJECT["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {least}" in PROJECT["classifiers"]
    licenses = [text for text in PROJECT["classifiers"] if text.startswith("License")]
    assert licenses == []  # the expression says it, and an index refuses both
    assert (ROOT / PROJECT["readme"]).exists()
    for pattern in PROJECT["license-files"]:
        assert (ROOT / pattern).exists()


def test_only_the_job_that_publishes_has_an_identity_and_none_has_a_token() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert "permissions" not in build
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"
    assert publish["environment"] == "pypi"
    assert not re.search(r"secrets\.|password", text)
    assert "make wheel" in [step.get("run") for step in build["steps"]]


def test_the_workflow_reads_the_version_as_it_is_written() -> None:
    """The line that compares tag and version finds one version, the project's."""
    found = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found == [PROJECT["version"]]
