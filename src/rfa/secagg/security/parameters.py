"""The parameters of a secure sum, derived from whom it must withstand.

With n devices, of which c may tell the server what they know and f may drop out:

    semi-honest server   k > c + f, c < t <= k - f
    malicious server     2 t > k + c also, signed identities, and a quorum of devices that sign the
                         same survivors

where every device shares masks with k neighbors, t of whom can open its secrets. These hold with
certainty. In a large cohort in random order, colluders and drop-outs are not all neighbors of one
device: with a semi-honest server, who draws the order, fewer neighbors then do, but for a
probability of 2^-40 (`odds`). They are taken where they are fewer; their number grows with the
logarithm of n.

    >>> print(derive(1000, num_colluders=100, num_dropouts=200))
    n=1000 c=100 f=200 h=250 k=74 t=33 (semi-honest server, by odds)
    >>> print(derive(1000, num_colluders=100, num_dropouts=200, failure_bits=None))
    n=1000 c=100 f=200 h=250 k=302 t=101 (semi-honest server)
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from rfa._checks import check_count
from rfa.errors import InvalidValueError
from rfa.secagg.errors import ParameterError
from rfa.secagg.security import odds

LARGEST_COHORT = 1 << 20
MAX_VOTERS = (1 << 13) - 1
"""The most devices whose votes on blocks leave enough digits of a word for the push."""
LARGEST_DEGREE = 1 << 14
MAX_NEIGHBORS = 512
"""The most neighbors that a device deals to by default: with 16 sums, most of a second of work."""
MAX_MASKED_SUMS = 256
"""The most masked sums of a round."""
LEAST_HONEST = 3
"""With two honest devices, their masses would follow from the sums of masses and of squares."""
HONEST_PER_QUERY = 16
"""How many more honest devices each further sum about the same updates asks for."""


class ServerModel(enum.IntEnum):
    """What the server may do."""

    SEMI_HONEST = 1
    """It follows the protocol, and keeps all it sees."""
    MALICIOUS = 2
    """It may send anything to anyone."""

    @property
    def label(self) -> str:
        """Its name in texts: semi-honest or malicious."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True)
class Parameters:
    """Parameters that were proven safe when they were made.

    Formal guarantees, for a cohort of n devices of which at most c collude with the server:
        a sum is opened only over at least n - f devices, so over at least h honest ones;
        no c colluders hold the t shares that open a secret;
        no f devices that drop out can keep a sum from being opened.
    Parameters by odds hold for a random order of the cohort, but for probabilities of 2^-40 (that
    a secret is opened, or a sum split) and 2^-30 (that it cannot be opened) in a round. Whoever
    makes this value, a device from what the server sent, has computed these for itself.

    Attributes:
        cohort: the number of devices n.
        num_colluders: how many devices c may tell the server all they know.
        num_dropouts: how many devices f may drop out in a round.
        min_honest: the least number h of honest devices in any sum, and in any difference of two.
        degree: the neighbors k of a device.
        threshold: the shares t that open a secret.
        server_model: what the server may do.
        statistical: whether they are parameters by odds.
    """

    cohort: int
    num_colluders: int
    num_dropouts: int
    min_honest: int
    degree: int
    threshold: int
    server_model: ServerModel = ServerModel.SEMI_HONEST
    statistical: bool = False

    def __post_init__(self) -> None:
        """Refuse what is not safe, with the reason."""
        for name in ("num_colluders", "num_dropouts"):
            insist(check_count, name, getattr(self, name), least=0)
        for name in ("cohort", "degree", "threshold"):
            insist(check_count, name, getattr(self, name), least=2)
        insist(check_count, "min_honest", self.min_honest, least=LEAST_HONEST)
        reason = self._reason()
        if reason:
            msg = (
                f"a sum over {self.cohort} devices, of whom {self.num_colluders} may collude and "
                f"{self.num_dropouts} drop out, is not safe: {reason} ({self})"
            )
            raise ParameterError(msg)

    def _reason(self) -> str:
        """Why these parameters are refused, and what to do; nothing if they are not."""
        n, c, f, h = self.cohort, self.num_colluders, self.num_dropouts, self.min_honest
        if n > LARGEST_COHORT:
            return f"at most {LARGEST_COHORT} devices can be in it: ask fewer"
        if n - f - c < h:
            return (
                f"{max(0, n - f - c)} honest ones are sure to be in it, and {h} must be: ask "
                f"{h + f + c} devices or more, or expect fewer that collude or drop out"
            )
        reason = self._graph_reason()
        return f"{reason}; rfa.secagg.derive gives a k and a t that are safe" if reason else ""

    def _graph_reason(self) -> str:
        """Why no device is safe with such neighbors and such a threshold.

        Two more conditions follow: k > c + f, so the graph stays connected without c + f devices;
        and, where the server is malicious, n - f reaches the quorum.
        """
        n, c, f, k, t = (
            self.cohort,
            self.num_colluders,
            self.num_dropouts,
            self.degree,
            self.threshold,
        )
        certain = not self.statistical
        checks = [
            (k <= LARGEST_DEGREE, f"a device has at most {LARGEST_DEGREE} neighbors, k"),
            (k == n - 1 or (k < n - 1 and k % 2 == 0), "k must be even, or n - 1"),
            (
                certain or self.server_model == ServerModel.SEMI_HONEST,
                "a malicious server needs certain parameters",
            ),
            (t <= k, "t must be at most k: nothing could be opened"),
            (not certain or t > c, "t must exceed c: colluders could open a secret"),
            (not certain or k - f >= t, "k - f must be at least t: drop-outs could block it"),
            (
                self.server_model == ServerModel.SEMI_HONEST or 2 * t > k + c,
                "2 t must exceed k + c: two answers",
            ),
        ]
        broken = next((reason for holds, reason in checks if not holds), "")
        if broken or certain:
            return broken
        if not self.holds_with(odds.FAILURE_BITS):
            return f"a device could be exposed with probability above 2^-{odds.FAILURE_BITS}"
        if odds.blocked(n, f, k, t) > odds.BLOCKED:
            return "drop-outs could block it with probability above 2^-30"
        return ""

    def holds_with(self, failure_bits: int | None) -> bool:
        """Whether no more than the sums is learned, but with a probability of at most 2^-bits.

        Args:
            failure_bits: the bits; None to ask for certainty.
        """
        if not self.statistical:
            return True
        if failure_bits is None:
            return False
        sizes = self.cohort, self.num_colluders, self.num_dropouts
        return odds.exposed(*sizes, self.degree, self.threshold) <= 2.0**-failure_bits

    @property
    def quorum(self) -> int:
        """How many devices must sign the same survivors: two such sets share an honest device."""
        return (self.cohort + self.num_colluders) // 2 + 1

    @property
    def survivors(self) -> int:
        """The least number of devices in a sum."""
        return self.cohort - self.num_dropouts

    @property
    def honest(self) -> int:
        """The least number of honest devices in a sum, n - f - c."""
        return self.survivors - self.num_colluders

    @property
    def numbers(self) -> tuple[int, int, int, int, int, int, int, int]:
        """The parameters as they travel."""
        return (
            self.cohort,
            self.num_colluders,
            self.num_dropouts,
            self.min_honest,
            self.degree,
            self.threshold,
            int(self.server_model),
            int(self.statistical),
        )

    def __str__(self) -> str:
        """The parameters by their letters."""
        return (
            f"n={self.cohort} c={self.num_colluders} f={self.num_dropouts} h={self.min_honest} "
            f"k={self.degree} t={self.threshold} ({self.server_model.label} server"
            f"{', by odds' if self.statistical else ''})"
        )


def derive(  # noqa: PLR0913
    cohort: int,
    *,
    num_colluders: int,
    num_dropouts: int,
    min_honest: int | None = None,
    server_model: ServerModel = ServerModel.SEMI_HONEST,
    failure_bits: int | None = odds.FAILURE_BITS,
    max_neighbors: int = MAX_NEIGHBORS,
) -> Parameters:
    """The cheapest safe parameters.

    Args:
        cohort: the number of devices n, at least 3.
        num_colluders: how many of them may tell the server all they know.
        num_dropouts: how many of them may drop out in a round.
        min_honest: the least number of honest devices in a sum; a quarter of the cohort by default.
        server_model: what the server may do.
        failure_bits: accept a failure with probability 2^-bits over the random order of the cohort
            where that takes fewer neighbors, for a semi-honest server; None for certainty only.
        max_neighbors: the most neighbors k that devices accept.

    Raises:
        ParameterError: if no parameters are safe; the message says what to change.
    """
    insist(check_count, "cohort", cohort, least=2)
    insist(check_count, "num_colluders", num_colluders, least=0)
    insist(check_count, "num_dropouts", num_dropouts, least=0)
    check_max_neighbors("max_neighbors", max_neighbors)
    least = max(LEAST_HONEST, cohort // 4) if min_honest is None else min_honest
    degree, threshold = _certain(num_colluders, num_dropouts, server_model)
    by_odds = False
    check_failure_bits("failure_bits", failure_bits)
    if failure_bits is not None and server_model == ServerModel.SEMI_HONEST:
        likely = odds.smallest(
            cohort, num_colluders, num_dropouts, failure_bits=failure_bits, below=degree
        )
        by_odds = likely is not None
        degree, threshold = likely or (degree, threshold)
    if degree >= cohort:
        msg = (
            f"{cohort} devices are too few to withstand {num_colluders} colluders and "
            f"{num_dropouts} drop-outs: ask more devices (k={degree} neighbors each), or expect "
            "fewer of those"
        )
        raise ParameterError(msg)
    even = degree + degree % 2
    degree = even if even < cohort - 1 else cohort - 1
    _check_degree(cohort, degree, max_neighbors)
    if server_model == ServerModel.MALICIOUS:
        threshold = max(threshold, (degree + num_colluders) // 2 + 1)
    return Parameters(
        cohort, num_colluders, num_dropouts, least, degree, threshold, server_model, by_odds
    )


def _certain(num_colluders: int, num_dropouts: int, server_model: ServerModel) -> tuple[int, int]:
    """The smallest (k, t) that hold wherever colluders and drop-outs are."""
    if server_model == ServerModel.MALICIOUS:
        threshold = max(2, num_colluders + num_dropouts + 1)
        return max(2, num_colluders + 2 * num_dropouts + 1), threshold
    threshold = max(2, num_colluders + 1)
    return threshold + num_dropouts, threshold


def _check_degree(cohort: int, degree: int, max_neighbors: int) -> None:
    if degree > max_neighbors:
        msg = (
            f"{cohort} devices would need k={degree} neighbors each, and they deal to at most "
            f"{max_neighbors}: ask fewer devices, expect fewer colluders or drop-outs, or give "
            "max_neighbors to the terms and to the policy of devices"
        )
        raise ParameterError(msg)


def check_max_neighbors(name: str, value: object) -> None:
    """Refuse what is no number of neighbors.

    Raises:
        ParameterError: naming the value.
    """
    insist(check_count, name, value, least=2)


def honest_needed(queries: int, per_query: int = HONEST_PER_QUERY) -> int:
    """The honest devices that must be in sums about the same updates: per_query (R - 1) + 3.

    R sums are R equations in as many unknown updates as there are honest devices: as many sums as
    these determine every update, and fewer tell much of the most exposed one. That there are more
    honest devices than sums is a floor, whatever is asked for each query.

    >>> [honest_needed(queries) for queries in (1, 2, 3)]
    [3, 19, 35]
    """
    return max(per_query * (queries - 1) + LEAST_HONEST, queries + 1)


def check_failure_bits(name: str, value: object) -> None:
    """Refuse a probability of failure that is too large.

    Raises:
        ParameterError: naming the value.
    """
    if value is not None:
        insist(check_count, name, value, least=odds.FAILURE_BITS)


def check_server_model(name: str, value: object) -> None:
    """Refuse what is no model of a server.

    Raises:
        ValueError: naming the value.
    """
    if value not in tuple(ServerModel):
        msg = f"{name} must be ServerModel.SEMI_HONEST or ServerModel.MALICIOUS, not {value!r}"
        raise InvalidValueError(msg)


def insist(check: Callable[..., None], name: str, value: object, **how: int) -> None:
    """Check a value, and refuse it as a parameter."""
    try:
        check(name, value, **how)
    except ValueError as error:
        raise ParameterError(str(error)) from None
