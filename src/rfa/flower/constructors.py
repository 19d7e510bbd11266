"""Strategies by their usual names: each takes only the parameters of its aggregator."""

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
"""The number of sub-cohorts if no budget is given."""
USUAL: Final = "usual"
"""The default clip norm of a mean."""


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
        """Create the strategy from the parameters of `rfa.aggregators.RFA`, and options.

        Args:
            budget: the number of sums R that a round may take; by default 1, and 3 in sub-cohorts.
                Several sums about the same updates reveal single ones together, unless 16 (R - 1) +
                3 honest nodes are in them: with the default terms, 27 nodes for two sums and 49 for
                three.
            nu: the smoothing radius; by default half the median distance of the updates, learned
                from the sums.
            start: "current", the current model, or "mean", which takes a sum itself.
            schedule: "plain" steps; "accelerated", with the last sum at an extrapolation; or
                "sub-cohorts", where each step asks another part of the nodes, so each node answers
                once.
            groups: the number of random groups of nodes. Each has its own sums, and the result is
                their geometric median. Nodes that lie in the sums spoil their own group only.
            clip_norm: the length to which a start at the mean clips updates; 100 by default. Give
                it if there is noise, because the noise is proportional to it.
            options: see `SecureStrategy`.

        Raises:
            InvalidValueError: if a value is wrong; the message says which.
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
    """One Weiszfeld step from the current model, with the communication of FedAvg (Algorithm 3)."""

    def __init__(
        self, *, nu: float | None = None, groups: int = 1, **options: Unpack[StrategyOptions]
    ) -> None:
        """Create the strategy from the parameters of `rfa.aggregators.OneStepRFA`, and options.

        Args:
            nu: the smoothing radius; learned from the sums by default.
            groups: the number of random groups of nodes, whose geometric median is taken.
            options: see `SecureStrategy`.
        """
        super().__init__(grouped(aggregators.OneStepRFA(nu=nu), groups), **options)


class SecureFedAvg(SecureStrategy):
    """FedAvg by one secure sum of clipped updates: private, but hardly robust."""

    def __init__(
        self,
        *,
        clip_norm: float | Literal["usual"] | None = USUAL,
        groups: int = 1,
        **options: Unpack[StrategyOptions],
    ) -> None:
        """Create the strategy from the parameters of `rfa.aggregators.Mean`, and options.

        Args:
            clip_norm: the length to which updates are clipped. The default is 100; with noise,
                which is proportional to it, the default is None. With None, the length is half the
                median length of the updates, learned from the sums.
            groups: the number of random groups of nodes, whose geometric median is taken.
            options: see `SecureStrategy`.
        """
        if clip_norm == USUAL:
            clip_norm = None if wants_noise(options) else Context().clip_norm
        super().__init__(grouped(aggregators.Mean(clip_norm=clip_norm), groups), **options)
