"""The lab: federated learning with corrupted devices, from Python.

    from rfa import lab

    result = lab.run("digits-linear", aggregator="rfa", corruption="omniscient", rho=0.25)
    result.evaluations["test_accuracy"]      # columns are numpy arrays
    result.plot().savefig("run.png")

    study = lab.sweep("digits-linear", corruption="omniscient", aggregator=["fedavg", lab.RFA()],
                      rho=[0, 0.1, 0.25], seed=range(1, 6))
    study.plot(x="rho")

`rfa run` and `rfa sweep` do the same from the command line. Names are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rfa._lazy import names_on_use

if TYPE_CHECKING:
    from rfa.aggregators import (
        RFA,
        BlockClipping,
        CenteredClipping,
        Groups,
        Mean,
        OneStepRFA,
        SubCohorts,
        SumAggregator,
    )
    from rfa.aggregators.clear import (
        Bulyan,
        ClearAggregator,
        CoordinateMedian,
        Krum,
        MeaMed,
        MixedMedian,
        MultiKrum,
        NearestNeighborMixing,
        NormClipping,
        TrimmedMean,
    )
    from rfa.lab.api.result import RunResult, list_runs, load_run
    from rfa.lab.api.run import run
    from rfa.lab.api.study import Study, SweepError, sweep
    from rfa.lab.attacks.corruption import (
        DataAttack,
        UpdateAttack,
        corrupts_data,
        corrupts_updates,
    )
    from rfa.lab.attacks.poisons import backdoor
    from rfa.lab.datasets.partition import (
        Dirichlet,
        Iid,
        Partition,
        Pathological,
        Similarity,
        Size,
    )
    from rfa.lab.errors import LabError
    from rfa.lab.model import Model, load_model
    from rfa.lab.runs.callback import Callback, RunView
    from rfa.lab.settings.settings import Settings
    from rfa.lab.table import Table
    from rfa.lab.tasks.task import Task
    from rfa.lab.tracking import MLflow, TensorBoard, WandB

_HOMES = {
    "rfa.aggregators": (
        "RFA",
        "BlockClipping",
        "CenteredClipping",
        "Groups",
        "Mean",
        "OneStepRFA",
        "SubCohorts",
        "SumAggregator",
    ),
    "rfa.aggregators.clear": (
        "Bulyan",
        "ClearAggregator",
        "CoordinateMedian",
        "Krum",
        "MeaMed",
        "MixedMedian",
        "MultiKrum",
        "NearestNeighborMixing",
        "NormClipping",
        "TrimmedMean",
    ),
    "rfa.lab.api.result": ("RunResult", "list_runs", "load_run"),
    "rfa.lab.api.run": ("run",),
    "rfa.lab.api.study": ("Study", "SweepError", "sweep"),
    "rfa.lab.attacks.corruption": (
        "DataAttack",
        "UpdateAttack",
        "corrupts_data",
        "corrupts_updates",
    ),
    "rfa.lab.attacks.poisons": ("backdoor",),
    "rfa.lab.datasets.partition": (
        "Dirichlet",
        "Iid",
        "Partition",
        "Pathological",
        "Similarity",
        "Size",
    ),
    "rfa.lab.errors": ("LabError",),
    "rfa.lab.model": ("Model", "load_model"),
    "rfa.lab.runs.callback": ("Callback", "RunView"),
    "rfa.lab.settings.settings": ("Settings",),
    "rfa.lab.table": ("Table",),
    "rfa.lab.tasks.task": ("Task",),
    "rfa.lab.tracking": ("MLflow", "TensorBoard", "WandB"),
}

__all__ = [
    "RFA",
    "BlockClipping",
    "Bulyan",
    "Callback",
    "CenteredClipping",
    "ClearAggregator",
    "CoordinateMedian",
    "DataAttack",
    "Dirichlet",
    "Groups",
    "Iid",
    "Krum",
    "LabError",
    "MLflow",
    "MeaMed",
    "Mean",
    "MixedMedian",
    "Model",
    "MultiKrum",
    "NearestNeighborMixing",
    "NormClipping",
    "OneStepRFA",
    "Partition",
    "Pathological",
    "RunResult",
    "RunView",
    "Settings",
    "Similarity",
    "Size",
    "Study",
    "SubCohorts",
    "SumAggregator",
    "SweepError",
    "Table",
    "Task",
    "TensorBoard",
    "TrimmedMean",
    "UpdateAttack",
    "WandB",
    "backdoor",
    "corrupts_data",
    "corrupts_updates",
    "list_runs",
    "load_model",
    "load_run",
    "run",
    "sweep",
]

__getattr__, __dir__ = names_on_use(__name__, _HOMES)
