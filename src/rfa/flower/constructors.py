"""Strategies by their usual names: each takes what applies to its aggregator, and nothing else."""

from __future__ import annotations

from typing import Final, Literal, Unpack

from rfa import aggregators
from rfa.aggregators.partition import SUB_COHORTS, compose_rfa, grouped
from rfa.aggregators.registry import Context, clip_norm_of
from rfa.errors import InvalidValueError
from rfa.flower.noise import wants_noise
from rfa.flower.options import StrategyOptions
from rfa.flower.strategy import SecureStrategy

DEFAULT_PARTS = 3
"""Into how many sub-cohorts nodes are dealt out where no budget is given."""
USUAL: Final = "usual"
"""The clip norm of a mean where none is given."""


class RFA(SecureStrategy):
    """RFA: the geometric median by Weiszfeld steps, each a secure sum (Algorithms 1 and 2)."""

    def __init__(  # noqa: PLR0913
        self,
        *,
        budget: int | None = None,
        nu: float | None = None,
        start: str = "current",
        schedule: str = "plain",
        groups: int = 1,
        clip_norm: float | None = None,
        **options: Unpack[StrategyOptions],
    ) -> None:
        """Take the parameters of `rfa.aggregators.RFA`, and options.

        Args:
            budget: sums that a round may take, R; by default one, and three in sub-cohorts. R
                sums about the same updates tell of single ones together, unless as many as
                16 (R - 1) + 3 honest nodes are in them: with the usual terms, 27 nodes for two sums
                and 49 for three.
            nu: the smoothing radius; by default half the median distance of the updates, learned
                from the sums.
            start: "current", the current model, or "mean", itself a sum.
            schedule: "plain" steps; "accelerated", the last sum at an extrapolation; or
                "sub-cohorts", each step another part of the nodes, so that a node answers once.
            groups: random groups of nodes, each with sums of its own, whose geometric median is
                taken: nodes that lie inside of the sums spoil their group and no other.
            clip_norm: the length to which a start at the mean clips updates; 100 by default, but
                to be given where there is noise, which is as large.
            options: see `SecureStrategy`.
        """
        if clip_norm is not None and start != "mean":
            msg = f"clip_norm={clip_norm} is for a start at the mean: give start='mean', or no "
            raise InvalidValueError(msg + "clip_norm")
        usual = clip_norm_of(0, Context(noise=wants_noise(options)), used=start == "mean")
        if budget is None:
            budget = DEFAULT_PARTS if schedule == SUB_COHORTS else 1
        aggregator = compose_rfa(
            budget=budget,
            nu=nu,
            start=start,
            schedule=schedule,
            groups=groups,
            clip_norm=usual if clip_norm is None else clip_norm,
        )
        super().__init__(aggregator, **options)


class OneStepRFA(SecureStrategy):
    """One Weiszfeld step from the current model: the communication of FedAvg (Algorithm 3)."""

    def __init__(
        self, *, nu: float | None = None, groups: int = 1, **options: Unpack[StrategyOptions]
    ) -> None:
        """Take the smoothing radius, learned by default, a number of groups, and options."""
        super().__init__(grouped(aggregators.OneStepRFA(nu=nu), groups), **options)


class SecureFedAvg(SecureStrategy):
    """FedAvg by one secure sum of clipped updates: private, hardly robust."""

    def __init__(
        self,
        *,
        clip_norm: float | Literal["usual"] | None = USUAL,
        groups: int = 1,
        **options: Unpack[StrategyOptions],
    ) -> None:
        """Take the length to which updates are clipped, a number of groups, and options.

        With clip_norm=None the length is half the median of the updates', learned from the sums;
        so it is by default where there is noise, which is as large as that length. Else it is 100.
        """
        if clip_norm == USUAL:
            clip_norm = None if wants_noise(options) else Context().clip_norm
        super().__init__(grouped(aggregators.Mean(clip_norm=clip_norm), groups), **options)
