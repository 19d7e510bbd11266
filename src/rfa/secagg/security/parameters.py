"""The parameters of a secure sum, derived from the adversary that it must withstand.

With n devices, of which c may collude with the server and f may drop out:

    semi-honest server   k > c + f, c < t <= k - f
    malicious server     2 t > k + c also, signed identities, and a quorum of devices that sign the
                         same survivors

where every device shares masks with k neighbors, t of whom can open its secrets. These conditions
hold with certainty. In a large cohort in random order, colluders and drop-outs are rarely all
neighbors of one device. With a semi-honest server, which draws the order, fewer neighbors then
suffice, except with a probability of 2^-40 (`odds`). `derive` chooses them where they are fewer;
their number grows with the logarithm of n.

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
"""The most neighbors of a device by default: with 16 sums, most of a second of work."""
MAX_MASKED_SUMS = 256
"""The most masked sums in a round."""
LEAST_HONEST = 3
"""The fewest honest devices: with two, the sums of masses and of squares would reveal their
masses."""
HONEST_PER_QUERY = 16
"""The number of further honest devices that each further sum about the same updates requires."""


class ServerModel(enum.IntEnum):
    """The behavior that a secure sum assumes of the server."""

    SEMI_HONEST = 1
    """The server follows the protocol, and analyzes everything that it sees."""
    MALICIOUS = 2
    """The server may send anything to anyone."""

    @property
    def label(self) -> str:
        """The name in texts: semi-honest or malicious."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True)
class Parameters:
    """Parameters of a cohort, which are checked to be safe when they are created.

    Formal guarantees, for a cohort of n devices of which at most c collude with the server:
        a sum is opened only over at least n - f devices, so over at least h honest ones;
        c colluders never hold the t shares that open a secret;
        f devices that drop out never keep a sum from being opened.
    Parameters by odds hold for a random order of the cohort, except with probabilities of 2^-40
    (that a secret is opened, or a sum split) and 2^-30 (that a sum cannot be opened) per round. A
    device creates this value from the numbers that the server sent, so it checks these conditions
    itself.

    Attributes:
        cohort: the number of devices n.
        num_colluders: the number of devices c that may collude with the server.
        num_dropouts: the number of devices f that may drop out in a round.
        min_honest: the least number h of honest devices in any sum, and in any difference of two.
        degree: the number of neighbors k of a device.
        threshold: the number of shares t that open a secret.
        server_model: what the server may do.
        statistical: whether these are parameters by odds.
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
        """Check that the parameters are safe.

        Raises:
            ParameterError: if they are not; the message says why.
        """
        for name in ("num_colluders", "num_dropouts"):
            insist(check_count, name, getattr(self, name), least=0)
        for name in ("cohort", "degree", "threshold"):
            insist(check_count, name, getattr(self, name), least=2)
        insist(check_count, "min_honest", self.min_honest, least=LEAST_HONEST)
        reason = self._reason()
        if reason:
            msg = (
                f"a sum over {self.cohort} devices, of which {self.num_colluders} may collude and "
                f"{self.num_dropouts} drop out, is not safe: {reason} ({self})"
            )
            raise ParameterError(msg)

    def _reason(self) -> str:
        """Return why these parameters are not safe, and a remedy; empty if they are safe."""
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
        """Return why the neighbors or the threshold are not safe; empty if they are safe.

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
        """Return whether the parameters fail with a probability of at most 2^-bits.

        They fail if the server learns more than the sums.

        Args:
            failure_bits: the bits; None to require certainty.
        """
        if not self.statistical:
            return True
        if failure_bits is None:
            return False
        sizes = self.cohort, self.num_colluders, self.num_dropouts
        return odds.exposed(*sizes, self.degree, self.threshold) <= 2.0**-failure_bits

    @property
    def quorum(self) -> int:
        """How many devices must sign the same survivors: two quorums share an honest device."""
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
        """The parameters as they are sent."""
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
        """Return the parameters by their letters."""
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
    """Return the parameters with the fewest neighbors that are safe.

    Args:
        cohort: the number of devices n, at least 3.
        num_colluders: the number of devices that may collude with the server.
        num_dropouts: the number of devices that may drop out in a round.
        min_honest: the least number of honest devices in a sum; a quarter of the cohort by default.
        server_model: what the server may do.
        failure_bits: accept a failure with probability 2^-bits over the random order of the cohort
            where that takes fewer neighbors, for a semi-honest server; None requires certainty.
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
    """Return the smallest (k, t) that are safe for any positions of colluders and drop-outs."""
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
    """Check that a value is a number of neighbors.

    Raises:
        ParameterError: if it is not; the message names the value.
    """
    insist(check_count, name, value, least=2)


def honest_needed(queries: int, per_query: int = HONEST_PER_QUERY) -> int:
    """Return the least number of honest devices in sums about the same updates.

    It is per_query (R - 1) + 3. R sums are R equations in as many unknown updates as there are
    honest devices. As many sums as honest devices determine every update, and fewer sums reveal
    much about the most exposed one. There must be more honest devices than sums, whatever per_query
    is.

    >>> [honest_needed(queries) for queries in (1, 2, 3)]
    [3, 19, 35]
    """
    return max(per_query * (queries - 1) + LEAST_HONEST, queries + 1)


def check_failure_bits(name: str, value: object) -> None:
    """Check that a probability of failure is small enough.

    Raises:
        ParameterError: if it is not; the message names the value.
    """
    if value is not None:
        insist(check_count, name, value, least=odds.FAILURE_BITS)


def check_server_model(name: str, value: object) -> None:
    """Check that a value is a `ServerModel`.

    Raises:
        ValueError: if it is not; the message names the value.
    """
    if value not in tuple(ServerModel):
        msg = f"{name} must be ServerModel.SEMI_HONEST or ServerModel.MALICIOUS, not {value!r}"
        raise InvalidValueError(msg)


def insist(check: Callable[..., None], name: str, value: object, **how: int) -> None:
    """Check a value, and raise a `ParameterError` if it is wrong."""
    try:
        check(name, value, **how)
    except ValueError as error:
        raise ParameterError(str(error)) from None
