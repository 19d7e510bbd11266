"""The corrupted share of rounds, from what the store has of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rfa.lab.paper.weights import MOVE, SHARE, binned, exhibit, moves, shares
from rfa.lab.report.gather import find_results
from rfa.lab.runs.run import Options, run
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import cells, make_sweep
from tests.lab.simulation.lab import tiny_devices

SWEEP = make_sweep(
    "s",
    {
        "settings": {
            "task": "tests.tiny:TASK",
            "corruption": "omniscient",
            "rho": 0.25,
            "rounds": 8,
            "eval_every": 2,
        },
        "lines": [
            {"label": "FedAvg", "aggregator": "fedavg", "divergence_factor": 0.0},
            {"label": "RFA", "aggregator": "rfa", "budget": 9},
        ],
    },
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    for cell in cells(SWEEP):
        run(cell.settings, Options(out, workers=1))
    return out


def test_shares_are_those_of_the_rounds(store: Path) -> None:
    with Store(store) as results:
        mean, median = (shares(one, results, None) for one in find_results(results, cells(SWEEP)))
    devices = tiny_devices(corruption="omniscient", rho=0.25)
    chosen = devices.sample(0)
    weights = devices.weights[chosen]
    want = weights[devices.is_corrupted[chosen]].sum() / weights.sum()
    assert mean.alpha[0] == pytest.approx(want)
    assert mean.beta is None
    assert median.beta is not None
    assert (median.alpha == mean.alpha).all()  # the same seed draws the same devices
    few = (median.alpha > 0) & (median.alpha < 0.4)
    assert few.sum() >= 5
    assert (median.beta[few] < median.alpha[few]).all()
    x, y = moves(median)
    assert len(x) == len(y) == 4


def test_bins_hold_equally_many() -> None:
    x, y = np.arange(12.0), 10 * np.arange(12.0)
    found = list(binned(x, y, 3))
    assert [place for place, _ in found] == [1.5, 5.5, 9.5]
    assert [spread.mean for _, spread in found] == [15, 55, 95]
    assert [len(spread.values) for _, spread in found] == [4, 4, 4]
    assert len(list(binned(x[:2], y[:2], 6))) == 2


def test_the_exhibit_has_both_views(store: Path) -> None:
    with Store(store) as results:
        found = find_results(results, cells(SWEEP))
        shown = exhibit(SWEEP, found, results, None)
    assert shown.views == [SHARE, MOVE]
    assert [line.label for line in shown.panels[0].lines] == ["RFA", "as in the mean"]
    assert [line.label for line in shown.panels[1].lines] == ["FedAvg", "RFA"]
    assert len(shown.tables[0].rows) == 2
