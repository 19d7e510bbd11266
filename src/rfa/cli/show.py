"""One run on the terminal: the closing summary."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from rfa.cli.text import labeled
from rfa.lab.runs.attackers import sybils_text
from rfa.lab.runs.headline import accuracy_words, percent
from rfa.lab.runs.spent import privacy_lines

COLUMN = 17
"""Where the values of a summary begin."""


def show_run(row: dict[str, Any]) -> None:
    """Print the summary of a run, from its row of the store."""
    settings = json.loads(row["settings"])
    anew = ", drawn anew each round" if settings["attack"]["attackers"] == "random" else ""
    sybils = sybils_text(settings["attack"].get("sybils", 0))
    lines = {
        "run": row["run"],
        "status": f"{row['status']} after {row['rounds']} rounds",
        "data": row["note"],
        "corruption": f"{row['corruption']}, rho {row['rho']:g}: "
        f"{row['corrupted_devices']} of {row['devices']} devices{anew}"
        + f", and {sybils} in every round"
        * bool(sybils),
        "oracle calls": f"{row['oracle_calls']}",
        "test accuracy": accuracy_words(row, "test_accuracy", "honest_accuracy"),
        "  median device": accuracy_words(row, "median_device", "honest_median_device"),
        "  worst tenth": accuracy_words(row, "worst_tenth", "honest_worst_tenth")
        + ", the mean of these devices",
        "train loss": "-" if row["train_loss"] is None else f"{row['train_loss']:.4f}",
        "dropped updates": f"{row['dropped_updates']}"
        + ", those of sybils not counted" * bool(sybils),
        "rejected rounds": f"{row['rejected_rounds']}",
        "time": f"{row['seconds']:.1f} s",
    }
    if row["backdoor"] is not None:
        lines["backdoor"] = f"{percent(row['backdoor'])} of other classes fall for the trigger"
    if settings["secure"]["mode"] != "off":
        lines |= _secure_lines(row, settings)
    lines |= privacy_lines(row, settings)
    if row["stop_reason"]:
        lines["status"] += f": {row['stop_reason']}"
    for name, value in lines.items():
        if value:
            say_labeled(name, value)


def _secure_lines(row: dict[str, Any], settings: dict[str, Any]) -> dict[str, str]:
    """Return the lines of a summary about secure sums: stopped rounds, why, the certificate."""
    lines = {"stopped rounds": f"{row['stopped_rounds']}"}
    if row["stopped"]:
        lines["stopped rounds"] += f" (the last: {row['stopped']})"
        if "start=mean" in (row["parameters"] or "").split(","):
            lines["  remedy"] = "--start current keeps the steps before; rfa-one-step asks once"
    if row["certificate"] is not None:
        share = min(row["certificate"], settings["secure"]["max_share"] or 1.0)
        lines["largest share"] = f"at most {percent(share)} of the last step"
    return lines


def say_labeled(label: str, text: str, column: int = COLUMN) -> None:
    """Print a label and a text beside it, which goes on below itself where it is long."""
    for line in labeled(label, text, column, Console().width):
        click.echo(line)


def say(text: str) -> None:
    """Print a text as it is."""
    Console(markup=False, highlight=False).print(text, soft_wrap=True)
