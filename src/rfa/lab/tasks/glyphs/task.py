"""Characters drawn from fonts, each writer with a style of its own: EMNIST without a download."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rfa.lab.tasks.emnist import task as emnist
from rfa.lab.tasks.glyphs.reader import Glyphs


def note(names: Sequence[str]) -> str:
    """Say that the writers do not exist."""
    return f"synthetic: characters drawn from fonts, {len(names)} made-up writers"


TASKS = tuple(
    dataclasses.replace(
        task,
        name=task.name.replace("emnist", "glyphs"),
        title=task.title.replace("handwritten characters", "drawn characters (synthetic)"),
        reader=Glyphs(),
        note=note,
        defaults=task.defaults | {"rounds": 200},
        per_aggregator={"sgd": task.per_aggregator["sgd"]},
    )
    for task in emnist.TASKS
)
