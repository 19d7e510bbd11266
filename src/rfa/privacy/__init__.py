"""Differential privacy of sums with noise: what a sum is charged, and what charges add up to.

>>> round(epsilon_of(rho_of(8.0, 1e-5), 1e-5), 6)
8.0
"""

from __future__ import annotations

from rfa.privacy.budget import Budget, Charges, multiplier_for
from rfa.privacy.noisy_sum import NoisySum
from rfa.privacy.readers import SampledRounds, readers_epsilon
from rfa.privacy.zcdp import epsilon_of, rho_of

__all__ = [
    "Budget",
    "Charges",
    "NoisySum",
    "SampledRounds",
    "epsilon_of",
    "multiplier_for",
    "readers_epsilon",
    "rho_of",
]
