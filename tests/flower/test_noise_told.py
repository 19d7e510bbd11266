"""What is said of noise: options and their remedies, the log, receipts, and both epsilons."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from click.testing import CliRunner

from rfa.cli.main import main
from rfa.errors import InvalidValueError, MissingExtraError
from rfa.flower import RFA, OneStepRFA, SecureStrategy
from rfa.flower.privacy import READERS, SERVER
from rfa.flower.spending import MOST_KINDS, Spending
from rfa.privacy import NoisySum, SampledRounds, epsilon_of, readers_epsilon
from tests.flower.grid import LocalGrid
from tests.flower.noisy import NAMES, Z
from tests.flower.toy import DIM, model, nodes, with_nu
from tests.privacy.exact import gaussian_epsilon


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"epsilon": 0.0}, "epsilon must be a positive number"),
        ({"epsilon": -1.0}, "epsilon must be a positive number"),
        ({"epsilon": "8"}, "epsilon must be a positive number"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be a positive number"),
        ({"epsilon": 8.0, "delta": 2.0}, "delta must be"),
        ({"delta": 1e-6}, "delta=1e-06 is for epsilon or noise_multiplier"),
        ({"epsilon": 8.0, "weights": "examples"}, "weights='examples' .* give weights='equal'"),
        ({"epsilon": 8.0, "weights": "buckets"}, "weights='buckets' .* give weights='equal'"),
        ({"noise_multiplier": 1.0, "max_share": 0.3}, "max_share=0.3 needs exact sums"),
        ({"epsilon": 8.0, "robust_metrics": {"loss": (0.0, 1.0)}}, "robust_metrics .* evaluate_fn"),
        ({"epsilon": 8.0, "fraction_evaluate": 0.5}, "fraction_evaluate=0.5: .* evaluate_fn"),
        ({"epsilon": 8.0, "schedule": "accelerated", "budget": 4}, "accelerated"),
    ],
)
def test_what_does_not_go_with_noise_is_refused_with_a_remedy(
    wrong: dict[str, Any], what: str
) -> None:
    with pytest.raises(InvalidValueError, match=what):
        RFA(**wrong)


@pytest.mark.parametrize(
    "fine", [{"weights": "equal"}, {"fraction_evaluate": 0.0}, {"delta": 1e-7}, {"max_share": 0.0}]
)
def test_what_noise_implies_may_be_spelled_out(fine: dict[str, Any]) -> None:
    for strategy in (RFA(epsilon=8.0, **fine), OneStepRFA(noise_multiplier=1.0, **fine)):
        assert strategy.options.weights == "equal"
        assert strategy.fraction_evaluate == 0.0


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ({"noise_multiplier": 1e5}, "give less noise, or more devices"),
        ({"epsilon": 1e-4}, "epsilon=0.0001 cannot be had .* larger epsilon"),
    ],
)
def test_noise_that_no_sum_can_hold_is_refused_before_anything_is_trained(
    tmp_path: Path, option: dict[str, Any], remedy: str
) -> None:
    grid = LocalGrid(nodes(tmp_path))
    with pytest.raises(InvalidValueError, match=remedy):
        OneStepRFA(**option, **with_nu()).start(grid, model(), 5)
    assert not grid.seen


def test_the_log_says_both_epsilons_and_the_noise(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    OneStepRFA(epsilon=8.0, **with_nu()).start(LocalGrid(nodes(tmp_path)), model(), 2)
    assert "noise: found when it starts; budget of a node: epsilon=8 at delta=1e-05" in said.text
    assert "times what one node can add to it" in said.text
    found = re.search(r"against the server: 7.9\d+ of 8; against readers of the models", said.text)
    assert found
    assert "noise of" in said.text
    assert "share above" not in said.text


@pytest.mark.parametrize("strategy", [OneStepRFA, RFA])
def test_receipts_say_what_a_run_with_noise_has_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: type[SecureStrategy]
) -> None:
    monkeypatch.setenv("RFA_HOME", str(tmp_path / "server"))
    how: dict[str, Any] = {"receipts": tmp_path / "receipts", **with_nu()}
    running = strategy(noise_multiplier=Z, **how)  # type: ignore[call-arg]
    result = running.start(LocalGrid(nodes(tmp_path)), model(), 2)
    first, second = (float(str(result.train_metrics_clientapp[t][SERVER])) for t in (1, 2))
    files = sorted((tmp_path / "receipts").glob("*.rfa"))
    verified = CliRunner().invoke(main, ["verify", *map(str, files)])
    assert verified.exit_code == 0, verified.output
    said = " ".join(verified.output.split())
    assert f"noise {Z:g}: epsilon {first:.3g} at delta 1e-05 for this round against" in said
    assert f"epsilon {second:.3g} at delta 1e-05 for the most charged node" in said


def test_a_delta_that_is_large_for_so_many_nodes_is_a_warning(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    grid = LocalGrid(nodes(tmp_path))
    OneStepRFA(noise_multiplier=Z, delta=0.01, **with_nu()).start(grid, model(), 1)
    assert "is large" not in said.text
    OneStepRFA(noise_multiplier=Z, delta=0.2, **with_nu()).start(grid, model(), 1)
    assert "delta=0.2 is large: it may reveal everything about 2 of 8 devices" in said.text


def test_readers_of_the_models_learn_less_where_nodes_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="needs pip install 'rfa[dp]'")
    how = with_nu(fraction_train=0.5, min_train_nodes=4)
    strategy = OneStepRFA(noise_multiplier=4.0, **how)
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 3)
    (rounds,) = strategy.privacy.spending.rounds
    assert (rounds.cohort, rounds.population, rounds.count) == (4, 8, 3)
    readers = float(str(result.train_metrics_clientapp[3][READERS]))
    assert readers == readers_epsilon([rounds], 1e-5)
    assert readers < epsilon_of(3 * rounds.rho, 1e-5)


def test_where_budgets_say_who_is_drawn_no_draw_is_counted(tmp_path: Path) -> None:
    """Who was drawn before is left out: draws that depend on each other hide nobody for sure."""
    pytest.importorskip("dp_accounting", reason="needs pip install 'rfa[dp]'")
    how = with_nu(fraction_train=0.5, min_train_nodes=4)
    four = NoisySum(4, 3, Z, DIM, near=False).rho
    strategy = OneStepRFA(epsilon=epsilon_of(1.5 * four, 1e-5), noise_multiplier=Z, **how)
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 2)
    told = [float(str(result.train_metrics_clientapp[t][READERS])) for t in (1, 2)]
    exact = gaussian_epsilon(math.sqrt(2 * four), 1e-5)
    drawn = readers_epsilon([SampledRounds(four, 4, 8)], 1e-5)
    assert told == pytest.approx([drawn, exact], rel=1e-6)
    assert told[0] < exact
    spending = strategy.privacy.spending
    assert Spending.unpack(spending.pack()).epsilons(1e-5) == spending.epsilons(1e-5)


def test_where_nodes_refuse_for_their_budgets_no_draw_is_counted(tmp_path: Path) -> None:
    how = with_nu(fraction_train=0.75, min_train_nodes=4)
    strategy = OneStepRFA(noise_multiplier=Z, **how)
    strategy.start(LocalGrid(nodes(tmp_path)), model(), 1)
    assert not strategy.privacy.spending.linked
    strategy.privacy.hear({NAMES[0]: "PrivacySpentError: nothing is left"})
    assert strategy.privacy.spending.linked


class Chosen(OneStepRFA):
    """A strategy that draws nodes in a way of its own."""

    def configure_train(self, *arguments: Any, **named: Any) -> Any:
        """As the usual one."""
        return super().configure_train(*arguments, **named)


def test_a_draw_that_is_not_known_counts_for_nothing(tmp_path: Path) -> None:
    how = with_nu(fraction_train=0.5, min_train_nodes=4)
    strategy = Chosen(noise_multiplier=4.0, **how)
    strategy.start(LocalGrid(nodes(tmp_path)), model(), 1)
    (rounds,) = strategy.privacy.spending.rounds
    assert rounds.fraction == 1


def test_without_the_extra_the_log_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    def missing(*_: Any) -> float:
        msg = "pip install 'rfa[dp]'"
        raise MissingExtraError(msg)

    monkeypatch.setattr("rfa.flower.spending.readers_epsilon", missing)
    strategy = OneStepRFA(noise_multiplier=Z, **with_nu())
    result = strategy.start(LocalGrid(nodes(tmp_path)), model(), 1)
    assert set(result.train_metrics_clientapp[1]) == {SERVER}
    assert "against readers of the models: not known: pip install 'rfa[dp]'" in said.text


def test_rounds_of_many_kinds_are_told_in_time_and_never_too_small() -> None:
    pytest.importorskip("dp_accounting", reason="needs pip install 'rfa[dp]'")
    spending = Spending()
    for t in range(3 * MOST_KINDS):
        spending = spending.played(0.02 * (1 + 0.001 * t), 100 - t % 3, 1000 + t)
    assert len(spending.rounds) == 3 * MOST_KINDS
    _, readers = spending.epsilons(1e-5)
    exact = readers_epsilon(spending.rounds, 1e-5)
    assert readers is not None
    assert exact <= readers < 1.03 * exact
