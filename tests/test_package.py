"""The package as such: its public names, what importing it loads, and its command line."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rfa.cli.main import main
from rfa.lab import demo

PUBLIC = {
    "rfa": """
        InvalidTypeError InvalidValueError Median OracleStoppedError PlainOracle PluginError
        Radii RecordingOracle Relative RfaError Smoothing Sum SumOracle accelerated
        geometric_median one_step weiszfeld
    """,
    "rfa.aggregators": """
        AdaptiveRadius BlockClipping CenteredClipping ClearAggregator Groups Layout Mean
        OneStepRFA RFA
        Result SubCohorts SumAggregator build spec_of
    """,
    "rfa.aggregators.clear": """
        Aggregate AssumesCorrupted Bucketing Bulyan CenteredClipping ClearAggregator
        CoordinateMedian DnC FLAME FLTrust InnerAggregator Krum MeaMed MixedMedian MultiKrum
        NearestNeighborMixing NormClipping Randomized ServerAlone SignGuard
        TrimmedMean
    """,
    "rfa.secagg": """
        AbortError Contribution Device DurableDevice Encoding Exchange Identity InProcess
        MessageError Moment NotFiniteError Outbox ParameterError Parameters Policy
        PrivacySpentError Profile RefusalError SecAggError SecureOracle Server ServerModel
        Stage Terms Total UnmaskedOracle VaultError derive identity_of open_round
    """,
    "rfa.privacy": """
        Budget Charges NoisySum SampledRounds epsilon_of multiplier_for readers_epsilon rho_of
    """,
    "rfa.planning": """
        FederationPlan NoisePlan NoiseRequest PlanRequest check_fit describe_sums make_terms plan
        plan_noise
    """,
    "rfa.receipts": """
        Expected Receipt ReceiptBook ReceiptError Verified Verifier check_total read_model
        read_receipt write_model write_receipt
    """,
    "rfa.flower": """
        NodesRefusedError NothingDoneError OneStepRFA Policy RFA RobustMod RunFailedError
        SecureFedAvg SecureOptions SecureStrategy ServerModel ServerOptimizer
        StrategyOptions Terms TooFewNodesError create_identity read_identities robust_mod
    """,
    "rfa.lab": """
        BlockClipping Bulyan Callback CenteredClipping ClearAggregator CoordinateMedian
        DataAttack Dirichlet
        Groups Iid Krum LabError MLflow MeaMed Mean MixedMedian Model MultiKrum
        NearestNeighborMixing NormClipping OneStepRFA Partition Pathological RFA RunResult
        RunView Settings Similarity Size Study SubCohorts SumAggregator SweepError Table Task
        TensorBoard TrimmedMean UpdateAttack WandB backdoor corrupts_data corrupts_updates
        list_runs load_model load_run run sweep
    """,
    "rfa.lab.tracking": "MLflow TensorBoard Tracker TrackingError WandB find_tracker",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names(module: str) -> None:
    if module == "rfa.flower":
        pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
    room = importlib.import_module(module)
    names: list[str] = getattr(room, "__all__", [])
    assert sorted(names) == PUBLIC[module].split()
    assert all(hasattr(room, name) for name in names)


def test_importing_loads_numpy_and_nothing_heavy() -> None:
    code = (
        "import sys, rfa, numpy; rfa.geometric_median(numpy.eye(3));"
        "print([m for m in ('torch', 'matplotlib', 'click', 'rich', 'cryptography', 'scipy')"
        " if m in sys.modules])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_command_line_starts_without_what_it_may_not_need() -> None:
    code = (
        "import sys, rfa.cli.main;"
        "print([m for m in ('torch', 'matplotlib', 'cryptography', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_demo_shows_fedavg_breaking_and_rfa_standing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    curves = demo.learn(tmp_path)
    last = {(curve.aggregator, curve.corruption): curve.last for curve in curves}
    clean = last["fedavg", "none"]
    assert clean > 0.9
    assert last["fedavg", "omniscient"] < 0.2
    for name in ("rfa", "rfa-one-step"):
        assert last[name, "omniscient"] > clean - 0.08
        assert last[name, "data"] > clean - 0.03
        assert last[name, "data"] > last["fedavg", "data"]
    assert all("real images" in curve.note for curve in curves)
    demo.draw(curves, tmp_path / "new" / "demo.png")
    assert (tmp_path / "new" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_without_the_lab_the_demo_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "can_draw", lambda: False)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert "pip install 'rfa[lab]'" in result.output


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "file" / "x")])
    assert result.exit_code == 1
    assert "cannot be used" in result.output
    assert "Traceback" not in result.output
