"""Plan a federation before you build it: devices per round, thresholds, bytes, noise.

>>> found = plan(PlanRequest(rho=0.1, rounds=100, devices=1000, dim=1_000_000))
>>> found.theorem, found.exact, found.devices_per_round
(96, 34, 49)
"""

from __future__ import annotations

from rfa.planning.federation import FederationPlan, PlanRequest, plan
from rfa.planning.fit import check_fit, describe_sums, make_terms
from rfa.planning.noise import NoisePlan, NoiseRequest, plan_noise

__all__ = [
    "FederationPlan",
    "NoisePlan",
    "NoiseRequest",
    "PlanRequest",
    "check_fit",
    "describe_sums",
    "make_terms",
    "plan",
    "plan_noise",
]
