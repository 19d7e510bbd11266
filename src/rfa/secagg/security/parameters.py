"""The parameters of a secure sum, derived from whom it must withstand.

With n devices, of which c may tell the server what they know and f may drop out:

    honest but curious server   k > c + f,        c < t <= k - f
    server that may lie         2 t > k + c also, signed identities, and a quorum of devices that
                                sign the same survivors

where every device shares masks with k neighbors, t of whom can open its secrets. For large cohorts
in random order, colluders and drop-outs are not all neighbors of one device: the smallest (k, t)
that expose a device with probability below 2^-40 serve an honest but curious server at a cost that
grows with the logarithm of n (`odds`).

    >>> derive(100, colluders=10, dropouts=20)
    Parameters(cohort=100, colluders=10, dropouts=20, honest=25, degree=32, threshold=11, ...)
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from rfa._checks import check_count
from rfa.secagg.errors import ParameterError
from rfa.secagg.security import odds

LARGEST_COHORT = 1 << 20
LARGEST_DEGREE = 1 << 14
MOST_TURNS = 256
"""The most masked sums of a round."""
LEAST_HONEST = 3
"""With two honest devices, their masses would follow from the sums of masses and of squares."""


class Trust(enum.IntEnum):
    """What the server is trusted with."""

    CURIOUS = 1
    """It follows the protocol, and keeps all it sees."""
    LYING = 2
    """It may send anything to anyone."""


@dataclass(frozen=True)
class Parameters:
    """Parameters that were proven safe when they were made.

    Formal guarantees, for a cohort of n devices of which at most c collude with the server:
        a sum is opened only over at least n - f devices, so over at least h honest ones;
        no c colluders hold the t shares that open a secret;
        no f devices that drop out can keep a sum from being opened (in a
        statistical setting, but for probabilities of 2^-40, 2^-40 and 2^-30 in a round).

    Attributes:
        cohort: the number of devices n.
        colluders: how many devices c may tell the server all they know.
        dropouts: how many devices f may drop out in a round.
        honest: the least number h of honest devices in any sum, and in any difference of two.
        degree: the neighbors k of a device.
        threshold: the shares t that open a secret.
        trust: what the server is trusted with.
        statistical: whether the guarantees are for a random order of the cohort.
    """

    cohort: int
    colluders: int
    dropouts: int
    honest: int
    degree: int
    threshold: int
    trust: Trust = Trust.CURIOUS
    statistical: bool = False

    def __post_init__(self) -> None:
        """Refuse what is not safe, with the reason."""
        for name in ("colluders", "dropouts"):
            insist(check_count, name, getattr(self, name), least=0)
        for name in ("cohort", "degree", "threshold"):
            insist(check_count, name, getattr(self, name), least=2)
        insist(check_count, "honest", self.honest, least=LEAST_HONEST)
        reason = self._reason()
        if reason:
            msg = f"{self} is not safe: {reason}"
            raise ParameterError(msg)

    def _reason(self) -> str:
        """Why these parameters are refused; nothing if they are not.

        Two more conditions follow: k > c + f, so the graph stays connected without c + f devices;
        and, where the server may lie, n - f reaches the quorum.
        """
        n, c, f, k, t = self.cohort, self.colluders, self.dropouts, self.degree, self.threshold
        certain = not self.statistical
        checks = [
            (n <= LARGEST_COHORT, f"at most {LARGEST_COHORT} devices"),
            (k <= LARGEST_DEGREE, f"at most {LARGEST_DEGREE} neighbors"),
            (n - f - c >= self.honest, "n - f - c must be at least h: fewer would be in a sum"),
            (k == n - 1 or (k < n - 1 and k % 2 == 0), "k must be even, or n - 1"),
            (certain or self.trust == Trust.CURIOUS, "a server that lies needs certain parameters"),
            (t <= k, "t must be at most k: nothing could be opened"),
            (not certain or t > c, "t must exceed c: colluders could open a secret"),
            (not certain or k - f >= t, "k - f must be at least t: drop-outs could block it"),
            (self.trust == Trust.CURIOUS or 2 * t > k + c, "2 t must exceed k + c: two answers"),
        ]
        broken = next((reason for holds, reason in checks if not holds), "")
        if broken or certain:
            return broken
        if odds.exposed(n, c, f, k, t) > odds.EXPOSED:
            return "a device could be exposed with probability above 2^-40"
        if odds.blocked(n, f, k, t) > odds.BLOCKED:
            return "drop-outs could block it with probability above 2^-30"
        return ""

    @property
    def quorum(self) -> int:
        """How many devices must sign the same survivors: two such sets share an honest device."""
        return (self.cohort + self.colluders) // 2 + 1

    @property
    def survivors(self) -> int:
        """The least number of devices in a sum."""
        return self.cohort - self.dropouts

    @property
    def numbers(self) -> tuple[int, int, int, int, int, int, int, int]:
        """The parameters as they travel."""
        return (
            self.cohort,
            self.colluders,
            self.dropouts,
            self.honest,
            self.degree,
            self.threshold,
            int(self.trust),
            int(self.statistical),
        )

    def __str__(self) -> str:
        """The parameters by their letters."""
        return (
            f"n={self.cohort} c={self.colluders} f={self.dropouts} h={self.honest} "
            f"k={self.degree} t={self.threshold} ({self.trust.name.lower()} server)"
        )


def derive(  # noqa: PLR0913
    cohort: int,
    *,
    colluders: int,
    dropouts: int,
    honest: int | None = None,
    trust: Trust = Trust.CURIOUS,
    statistical: bool = False,
) -> Parameters:
    """The cheapest safe parameters.

    Args:
        cohort: the number of devices n, at least 3.
        colluders: how many of them may tell the server all they know.
        dropouts: how many of them may drop out in a round.
        honest: the least number of honest devices in a sum; a quarter of the cohort by default.
        trust: what the server is trusted with.
        statistical: accept a failure with probability 2^-40 over the random order of a large
            cohort, for an honest but curious server.

    Raises:
        ParameterError: if no parameters are safe; the message says what to change.
    """
    insist(check_count, "cohort", cohort, least=2)
    insist(check_count, "colluders", colluders, least=0)
    insist(check_count, "dropouts", dropouts, least=0)
    least = max(LEAST_HONEST, cohort // 4) if honest is None else honest
    degree, threshold = _certain(colluders, dropouts, trust)
    by_odds = False
    if statistical and trust == Trust.CURIOUS:
        likely = odds.smallest(cohort, colluders, dropouts) or (degree, threshold)
        by_odds = likely[0] < degree
        degree, threshold = likely if by_odds else (degree, threshold)
    if degree >= cohort:
        msg = (
            f"{cohort} devices are too few to withstand {colluders} colluders and {dropouts} "
            f"drop-outs: ask more devices (k={degree} neighbors each), or expect fewer of those"
        )
        raise ParameterError(msg)
    even = degree + degree % 2
    degree = even if even < cohort - 1 else cohort - 1
    if trust == Trust.LYING:
        threshold = max(threshold, (degree + colluders) // 2 + 1)
    return Parameters(cohort, colluders, dropouts, least, degree, threshold, trust, by_odds)


def _certain(colluders: int, dropouts: int, trust: Trust) -> tuple[int, int]:
    """The smallest (k, t) that hold wherever colluders and drop-outs are."""
    if trust == Trust.LYING:
        return max(2, colluders + 2 * dropouts + 1), max(2, colluders + dropouts + 1)
    threshold = max(2, colluders + 1)
    return threshold + dropouts, threshold


def insist(check: Callable[..., None], name: str, value: object, **how: int) -> None:
    """Check a value, and refuse it as a parameter."""
    try:
        check(name, value, **how)
    except ValueError as error:
        raise ParameterError(str(error)) from None
