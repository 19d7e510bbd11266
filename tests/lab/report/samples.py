"""Exhibits to show: realistic, logarithmic, empty and hostile ones."""

from __future__ import annotations

import math
import random

from rfa.lab.report.exhibit import Entry, Exhibit, Line, Matrix, Panel, Table

HOSTILE = '<img src=x onerror="window.broken=1"></script><script>window.broken=1</script>'
LEVELS = (0.0, 0.01, 0.1, 0.25)
ENDS = {"FedAvg": 0.4, "RFA": 0.83, "one-step RFA": 0.8, "coordinate-wise median": 0.7}


def curve(label: str, end: float, noise: random.Random) -> Line:
    """Accuracies that grow, of three seeds."""
    rounds = [float(step) for step in range(0, 201, 5)]
    mean = [100 * end * (1 - math.exp(-r / 40)) + noise.uniform(-1, 1) for r in rounds]
    width = [1 + 3 * noise.random() for _ in rounds]
    low = [m - w for m, w in zip(mean, width, strict=True)]
    high = [m + w for m, w in zip(mean, width, strict=True)]
    note = "1 of 3 runs diverged" if end < 0.1 else ""
    return Line(label, rounds, mean, low, high, seeds=3, note=note)


def training() -> Exhibit:
    """Eight panels in two views."""
    noise = random.Random(1)  # noqa: S311
    panels = [
        Panel(
            title=f"{task}, {level:.0%} corrupted",
            x_label="round",
            y_label="test accuracy (%)",
            lines=[
                curve(name, end - (2 * level if name == "FedAvg" else level / 2), noise)
                for name, end in ENDS.items()
            ],
            view=view,
            note="200 of 2000 rounds; 3 seeds",
        )
        for view, task in (("image data", "EMNIST linear"), ("text data", "Shakespeare LSTM"))
        for level in LEVELS
    ]
    rows = [
        [name, level, end - level / 2, 12345 * k, None if level == 0.01 else 0.0123]
        for k, (name, end) in enumerate(ENDS.items())
        for level in LEVELS
    ]
    head = ["aggregator", "level", "test accuracy", "oracle calls", "spread"]
    best = Table(
        "Best aggregator", ["level", "best", "by"], [[0.0, "FedAvg", 0.1], [0.25, "RFA", 3.25]]
    )
    return Exhibit(
        name="figure 3",
        title="Accuracy from round to round under corruption",
        claim="With a quarter of the devices corrupted FedAvg loses its accuracy; RFA keeps it, "
        "and one-step RFA does nearly as well for the price of a single secure sum.",
        paper="Figure 3, section 5.2",
        panels=panels,
        tables=[best, Table("Accuracy after the last round", head, rows)],
        command="rfa reproduce figure3 --rounds 200 --seeds 0 1 2 --out results/figure3",
        scale="200 of 2000 rounds, 3 of 5 seeds",
        data=[
            "EMNIST: the real data, 1000 writers.",
            "Shakespeare: the real text, cut for artificial devices of 500 letters.",
            "synthetic glyphs stand in for what could not be fetched.",
        ],
    )


def convergence() -> Exhibit:
    """Logarithmic axes, categories, a bound, gaps, a single point."""
    calls = [float(10**k) for k in range(1, 7)]
    error = [10.0 ** (-1.3 * k) for k in range(6)]
    gaps = [math.nan if k in (2, 3) else e * 3 for k, e in enumerate(error)]
    bound = [e * 20 for e in error]
    logs = [
        Line("Weiszfeld", calls, error, [e / 3 for e in error], [e * 3 for e in error], seeds=5),
        Line("gradient descent", calls, gaps, gaps, gaps),
        Line(
            "upper bound",
            [10.0, 1e6],
            [20.0, bound[-1]],
            [20.0, bound[-1]],
            [20.0, bound[-1]],
            dashed=True,
        ),
        Line("one run", [1e3], [0.5], [0.2], [0.9], seeds=2),
    ]
    kinds = ["none", "data", "Gaussian noise", "omniscient", "label flips of all classes"]
    heights = [0.83, 0.8, 0.75, 0.7, 0.66]
    bars = [
        Line(
            "Weiszfeld",
            list(range(5)),
            heights,
            [h - 0.02 for h in heights],
            [h + 0.03 for h in heights],
            seeds=5,
        ),
        Line("one run", [3.0], [0.4], [0.4], [0.4]),
    ]
    return Exhibit(
        name="figure 5",
        title="Convergence of the smoothed Weiszfeld algorithm",
        claim="The distance to the geometric median falls as a power of the calls of the oracle.",
        paper="Figure 5, appendix D",
        panels=[
            Panel(
                "Distance to the median",
                "oracle calls",
                "relative error",
                logs,
                log_x=True,
                log_y=True,
                note="at most a million calls",
            ),
            Panel("Accuracy by corruption", "corruption", "test accuracy", bars, ticks=kinds),
        ],
        command="rfa reproduce figure5",
        missing=["The two largest problems: run `rfa reproduce figure5 --full`, about 3 hours."],
    )


def arena() -> Exhibit:
    """Two matrices of one picture, with a gap, a mark and rows that sum up."""
    entries = [
        [Entry(53.25, best=True), Entry(50.0), Entry(math.nan)],
        [Entry(0.5, "\u00d7", "1 of 2 diverged"), Entry(26.5), Entry(33.0, best=True)],
        [Entry(0.5, "\u00d7", "omniscient"), Entry(26.5), Entry(33.0, best=True)],
    ]
    matrices = [
        Matrix(
            title=f"EMNIST linear, level {level}",
            label="test accuracy (%)",
            rows=["no corruption", "omniscient", "worst case"],
            columns=["fedavg", "rfa", "krum"],
            entries=entries,
            groups=["under the secure sum", "under the secure sum", "see single updates"],
            summary=1,
            note="150 rounds",
        )
        for level in (0.1, 0.25)
    ]
    return Exhibit("arena", "Attacks and defenses", matrices=matrices, command="rfa arena")


def hostile() -> Exhibit:
    """A user's own sweep with markup everywhere."""
    entries = [[Entry(1.0, HOSTILE, HOSTILE, best=True)]]
    matrix = Matrix(HOSTILE, HOSTILE, [HOSTILE], [HOSTILE], entries, [HOSTILE], 1, "", HOSTILE)
    line = Line(HOSTILE, [0.0, 1.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0], note=HOSTILE)
    return Exhibit(
        name=HOSTILE, title=HOSTILE, claim=HOSTILE, paper=HOSTILE,
        panels=[
            Panel(HOSTILE, HOSTILE, HOSTILE, [line], view=HOSTILE, note=HOSTILE),
            Panel(HOSTILE, HOSTILE, HOSTILE, [line], view="", ticks=[HOSTILE, "b"]),
        ],
        matrices=[matrix],
        tables=[Table(HOSTILE, [HOSTILE], [[HOSTILE], [None]])],
        command=HOSTILE, scale=HOSTILE, data=[HOSTILE], missing=[HOSTILE],
    )  # fmt: skip


EMPTY = Exhibit(
    "figure 9", "Language models", missing=["The data is not there: `rfa data get reddit`."]
)
BARE = Exhibit("nothing", "A sweep without results")
ALL = [training(), convergence(), EMPTY, BARE, arena(), hostile()]
TRAINING, LOGS = "#figure-3", "#figure-5"
