"""The statements of the paper in its own words, each judged with the available runs.

Statements about EMNIST are judged in both polarities, because the paper leaves that open.
`verdicts` explains the four verdicts. A model that has not learned without corruption gets no
verdict.
"""

from __future__ import annotations

from rfa.lab.paper import choice_claims, robustness_claims
from rfa.lab.paper.evidence import Evidence
from rfa.lab.paper.statements import judge_one
from rfa.lab.report.exhibit import Table, Value

STATEMENTS = (
    robustness_claims.separates_linear,
    robustness_claims.ten_points,
    robustness_claims.nets_alike,
    robustness_claims.omniscient,
    robustness_claims.small_gap,
    robustness_claims.iid_gap,
    robustness_claims.beats_comparators,
    robustness_claims.krum_ahead,
    robustness_claims.no_worse,
    robustness_claims.graceful,
    robustness_claims.three_calls,
    robustness_claims.steadier,
    robustness_claims.narrower,
    robustness_claims.one_step,
    robustness_claims.one_step_net,
    choice_claims.personal_gain,
    choice_claims.personal_robust,
    choice_claims.personal_equal,
    choice_claims.budgets,
    choice_claims.ten_devices,
    choice_claims.small_cohorts,
    choice_claims.epochs,
    choice_claims.one_epoch,
    choice_claims.linear_rate,
    choice_claims.three_steps,
    choice_claims.less_weight,
)
"""The statements, in the paper's order."""


def judge(evidence: Evidence, *, verdicts: bool = True) -> Table:
    """Return all statements, each with the words of the paper, the verdict and its numbers.

    Without `verdicts` the runs are too short for conclusions, and there are only numbers.
    """
    rows: list[list[Value]] = []
    for each in STATEMENTS:
        for setting in each.settings:
            verdict, numbers = judge_one(each, evidence, setting)
            shown = verdict if verdicts else "not judged"
            again = setting != each.settings[0]
            rows.append(["" if again else each.quote, each.tested, setting, shown, numbers])
    head = ["the paper", "tested", "setting", "verdict", "numbers (accuracy in %, 95 % interval)"]
    return Table("Statements of the paper", head, rows)
