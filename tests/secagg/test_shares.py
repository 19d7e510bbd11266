"""Shamir's shares: t give the secret, t - 1 tell nothing, and corrupted ones are found."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa.secagg.crypto.shares import PRIME, TRIES, combine, evaluate, fitting, recover, split
from rfa.secagg.errors import BadShareError, ParameterError
from rfa.secagg.transcript import digest

secrets = st.one_of(
    st.binary(min_size=32, max_size=32), st.sampled_from([bytes(32), b"\xff" * 32, b"\1" * 32])
)
SECRET = bytes(range(100, 132))


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int, list[int]]:
    """A count of shares, a threshold, and at least as many of the places."""
    count = draw(st.integers(1, 20))
    threshold = draw(st.integers(1, count))
    places = draw(st.permutations(range(1, count + 1)))
    return count, threshold, places[: draw(st.integers(threshold, count))]


def is_prime(number: int) -> bool:
    """Miller and Rabin's test, with the first 24 primes as bases."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (p for p in range(2, 90) if all(p % q for q in range(2, p))):
        power = pow(base, odd, number)
        squares = [pow(power, 2**index, number) for index in range(twos)]
        if power != 1 and number - 1 not in squares:
            return False
    return True


def deal(count: int, threshold: int, secret: bytes = SECRET) -> dict[int, int]:
    return dict(enumerate(split(secret, count=count, threshold=threshold), 1))


def test_the_field_is_the_smallest_that_holds_every_secret() -> None:
    assert PRIME > 2**256
    assert is_prime(PRIME)
    assert not any(is_prime(number) for number in range(2**256 + 1, PRIME, 2))


@given(secrets, sizes())
def test_any_t_shares_give_the_secret(secret: bytes, size: tuple[int, int, list[int]]) -> None:
    count, threshold, places = size
    shares = deal(count, threshold, secret)
    assert len(shares) == count
    assert all(0 <= share < PRIME for share in shares.values())
    assert combine({place: shares[place] for place in places}, threshold=threshold) == secret


@given(sizes(), st.data())
def test_fewer_than_t_shares_are_an_error(
    size: tuple[int, int, list[int]], data: st.DataObject
) -> None:
    count, threshold, places = size
    few = places[: data.draw(st.integers(0, threshold - 1))]
    shares = {place: share for place, share in deal(count, threshold).items() if place in few}
    with pytest.raises(BadShareError, match="too few"):
        combine(shares, threshold=threshold)
    with pytest.raises(BadShareError, match="too few"):
        recover(shares, threshold=threshold, is_secret=lambda _: True)


@pytest.mark.parametrize(("prime", "threshold"), [(5, 1), (5, 2), (5, 3), (7, 2), (7, 3), (5, 4)])
def test_t_minus_1_shares_are_independent_of_the_secret(prime: int, threshold: int) -> None:
    """Over all polynomials, every secret gives the same shares, each tuple equally often."""
    count = prime - 1
    for places in itertools.combinations(range(count), threshold - 1):
        for secret in range(prime):
            seen: Counter[tuple[int, ...]] = Counter()
            for free in itertools.product(range(prime), repeat=threshold - 1):
                values = evaluate([secret, *free], count, prime)
                seen[tuple(values[place] for place in places)] += 1
            assert len(seen) == prime ** (threshold - 1)
            assert set(seen.values()) == {1}


def test_t_shares_are_not_independent_of_the_secret() -> None:
    """The same count finds the dependence where there is one."""
    seen = [{tuple(evaluate([secret, free], 2, 5)) for free in range(5)} for secret in range(5)]
    assert len({shares for one in seen for shares in one}) == sum(map(len, seen)) == 25


@given(secrets, sizes())
def test_shares_are_the_polynomial_that_was_drawn(
    secret: bytes, size: tuple[int, int, list[int]]
) -> None:
    """48 bytes for each of t - 1 coefficients, in one call, and nothing else."""
    count, threshold, _ = size
    asked: list[int] = []

    def entropy(size: int) -> bytes:
        asked.append(size)
        return bytes(index % 251 for index in range(size))

    found = split(secret, count=count, threshold=threshold, entropy=entropy)
    assert asked == [48 * (threshold - 1)]
    drawn = bytes(index % 251 for index in range(asked[0]))
    factors = [int.from_bytes(drawn[at : at + 48], "big") for at in range(0, len(drawn), 48)]
    start = int.from_bytes(secret, "big")
    for x, value in enumerate(found, 1):
        assert (start + sum(a * x**i for i, a in enumerate(factors, 1)) - value) % PRIME == 0


def test_shares_are_fresh_each_time() -> None:
    assert len({tuple(split(SECRET, count=3, threshold=2)) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("size", "count", "threshold"), [(31, 3, 2), (33, 3, 2), (0, 3, 2), (32, 3, 4), (32, 3, 0)]
)
def test_what_cannot_be_split_is_refused(size: int, count: int, threshold: int) -> None:
    with pytest.raises(ParameterError, match=f"cannot split {size} bytes into {count} shares"):
        split(bytes(size), count=count, threshold=threshold)


@given(st.integers(0, 6), st.integers(1, PRIME - 1), secrets)
def test_a_corrupted_share_never_gives_the_secret(at: int, error: int, secret: bytes) -> None:
    shares = deal(7, 7, secret)
    shares[at + 1] = (shares[at + 1] + error) % PRIME
    try:
        assert combine(shares, threshold=7) != secret
    except BadShareError as caught:
        assert "do not fit together" in str(caught)  # noqa: PT017


def test_shares_that_make_no_32_bytes_are_refused() -> None:
    with pytest.raises(BadShareError, match="2 shares do not fit together"):
        combine(dict(enumerate(evaluate([2**256, 5], 3, PRIME), 1)), threshold=2)


@given(st.sets(st.integers(1, 9), max_size=6), st.integers(1, 2**200))
def test_a_commitment_finds_the_secret_among_corrupted_shares(bad: set[int], error: int) -> None:
    """3 of 9 suffice, so up to 6 may be wrong."""
    shares = deal(9, 3)
    committed = digest(b"commitment", SECRET)
    wrong = {x: (y + error * x if x in bad else y) % PRIME for x, y in shares.items()}
    found, _ = recover(
        wrong, threshold=3, is_secret=lambda s: digest(b"commitment", s) == committed
    )
    assert found == SECRET


@settings(max_examples=50)
@given(st.sets(st.integers(1, 9), min_size=7), st.binary())
def test_too_many_corrupted_shares_are_an_error(bad: set[int], seed: bytes) -> None:
    wrong = deal(9, 3)
    for place in bad:
        wrong[place] = int.from_bytes(digest(b"error", seed, bytes([place])), "big")
    with pytest.raises(BadShareError, match="no 3 of 9 shares make the secret"):
        recover(wrong, threshold=3, is_secret=lambda secret: secret == SECRET)


@settings(max_examples=10)
@given(st.sets(st.integers(1, 40), min_size=1, max_size=2))
def test_scattered_choices_find_the_secret_where_sets_are_many(bad: set[int]) -> None:
    shares = deal(40, 20)
    wrong = {x: (y + 1 if x in bad else y) % PRIME for x, y in shares.items()}
    assert recover(wrong, threshold=20, is_secret=lambda secret: secret == SECRET)[0] == SECRET


def test_the_search_among_shares_ends() -> None:
    tried: list[bytes] = []

    def never(secret: bytes) -> bool:
        tried.append(secret)
        return False

    with pytest.raises(BadShareError):
        recover(deal(40, 20), threshold=20, is_secret=never)
    assert len(tried) <= TRIES + 1


@pytest.mark.parametrize(("count", "threshold", "wrong"), [(18, 9, 4), (30, 12, 9), (52, 28, 12)])
def test_many_corrupted_shares_are_done_without(count: int, threshold: int, wrong: int) -> None:
    """Up to half of what there is beyond the threshold, wherever it is."""
    secret = bytes(range(32))
    values = split(secret, count=count, threshold=threshold)
    for shift in (0, 5, count // 2):
        shares = dict(enumerate(values, 1))
        for index in range(wrong):
            shares[(shift + index) % count + 1] += index + 1
        assert recover(shares, threshold=threshold, is_secret=secret.__eq__)[0] == secret


def test_what_fits_together_is_found_on_a_small_field() -> None:
    """Every way to corrupt up to two of seven shares, of which three suffice."""
    prime = 31
    values = evaluate([5, 7, 11], 7, prime)
    for places in itertools.combinations(range(1, 8), 2):
        for shifts in itertools.product(range(0, prime, 5), repeat=2):
            shares = dict(enumerate(values, 1))
            for place, shift in zip(places, shifts, strict=True):
                shares[place] = (shares[place] + shift) % prime
            good = fitting(shares, 3, prime)
            assert len(good) >= 5
            assert all(shares[place] == values[place - 1] for place in good)


def solved(system: list[list[int]], prime: int) -> list[int]:
    """A solution of linear equations by elimination, each with its right side last."""
    unknowns, pivots = len(system[0]) - 1, list[int]()
    for column in range(unknowns):
        row = len(pivots)
        found = next((i for i in range(row, len(system)) if system[i][column]), None)
        if found is None:
            continue
        system[row], system[found] = system[found], system[row]
        inverse = pow(system[row][column], -1, prime)
        system[row] = [value * inverse % prime for value in system[row]]
        for i, other in enumerate(system):
            if i != row and (factor := other[column]):
                pairs = zip(other, system[row], strict=True)
                system[i] = [(value - factor * pivot) % prime for value, pivot in pairs]
        pivots.append(column)
    solution = [0] * unknowns
    for row, column in enumerate(pivots):
        solution[column] = system[row][-1]
    return solution


def berlekamp_welch(shares: dict[int, int], threshold: int, prime: int) -> list[int]:
    """What fits together, by Q(x) = y E(x) for an E that is zero where shares are corrupted."""
    wrong = (len(shares) - threshold) // 2
    system = [
        [-y * pow(x, power, prime) % prime for power in range(wrong)]
        + [pow(x, power, prime) for power in range(threshold + wrong)]
        + [y * pow(x, wrong, prime) % prime]
        for x, y in shares.items()
    ]
    locator = [*solved(system, prime)[:wrong], 1]
    values = {x: sum(a * x**i for i, a in enumerate(locator)) % prime for x in shares}
    return [x for x in sorted(shares) if values[x]]


def lie_on_one(shares: dict[int, int], points: list[int], threshold: int, prime: int) -> bool:
    """Whether points are on one polynomial of degree t - 1, by Lagrange through the first t."""
    base = points[:threshold]

    def value(x: int) -> int:
        total = 0
        for point in base:
            term = shares[point]
            for other in base:
                if other != point:
                    term = term * (x - other) * pow(point - other, -1, prime) % prime
            total += term
        return total % prime

    return all(value(x) == shares[x] for x in points)


@settings(max_examples=400)
@given(st.sampled_from([13, 17, 31, PRIME]), st.data())
def test_what_fits_together_is_what_the_slow_decoder_finds(prime: int, data: st.DataObject) -> None:
    """And all of it: a share that was changed to what it is anyway counts as good."""
    places = data.draw(st.permutations(range(1, 13)))
    places = places[: data.draw(st.integers(2, 12))]
    threshold = data.draw(st.integers(1, len(places)))
    factor = st.integers(0, prime - 1)
    polynomial = data.draw(st.lists(factor, min_size=threshold, max_size=threshold))
    values = evaluate(polynomial, 12, prime)
    shares = {x: values[x - 1] for x in places}
    for x in places[: data.draw(st.integers(0, (len(places) - threshold) // 2))]:
        shares[x] = data.draw(factor)
    good = [x for x in sorted(places) if shares[x] == values[x - 1]]
    assert fitting(shares, threshold, prime) == good
    slow = berlekamp_welch(shares, threshold, prime)
    assert set(slow) <= set(good)
    assert len(slow) >= threshold


@settings(max_examples=300)
@given(st.sampled_from([13, 31]), st.integers(2, 12), st.data())
def test_what_is_said_to_fit_together_does(prime: int, count: int, data: st.DataObject) -> None:
    """Whatever the shares are, also where far too many are corrupted."""
    factor = st.integers(0, prime - 1)
    drawn = data.draw(st.lists(factor, min_size=count, max_size=count))
    shares = dict(enumerate(drawn, 1))
    threshold = data.draw(st.integers(1, count))
    found = fitting(shares, threshold, prime)
    assert lie_on_one(shares, found, threshold, prime)


def test_a_hundred_corrupted_shares_of_302_are_done_without() -> None:
    """As many as may be, where the neighbors are those of 1000 devices with certainty."""
    secret = bytes(range(32))
    shares = deal(302, 101, secret)
    for place in range(1, 303, 3):
        if place <= 300:
            shares[place] = (shares[place] * 7 + place) % PRIME
    found, used = recover(shares, threshold=101, is_secret=secret.__eq__)
    assert found == secret
    assert list(used) == [place for place in range(1, 303) if place % 3 != 1 or place > 300]
