"""What masks, seals and commitments are bound to: whatever differs, they do not fit together."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rfa.secagg import transcript as hashing
from rfa.secagg.crypto.masks import keystream
from rfa.secagg.errors import CohortError, DuplicateKeyError
from rfa.secagg.messages.opening import NO_BASIS, OpenRound
from rfa.secagg.messages.round import DeviceKeys, SumRequest
from rfa.secagg.security.cohort import Cohort, form_cohort, in_order
from rfa.secagg.security.parameters import Parameters, ServerModel, derive
from rfa.secagg.transcript import (
    commitment_to,
    context_of,
    leaf_of,
    pair_mask_key,
    point_of,
    sealing_key,
    self_mask_key,
    share_binding,
    survivors_statement,
)

OPENING = OpenRound(
    bytes(16),
    round=7,
    queries=3,
    dim=2,
    metrics=1,
    max_share=0.5,
    server_model=1,
    statistics=0b11111,
    equal_weights=0,
    basis=NO_BASIS,
    noise=0.0,
)
PARAMETERS = Parameters(9, 1, 2, 3, 6, 3)
LEAVES = tuple(bytes([index]) * 32 for index in range(9))
V = np.array([1.0, 2.0], np.float32)
QUESTION = SumRequest(bytes(16), 1, 1, 0.5, 10**20, b"\xff\x01", (), V)
AGREED, SEED = bytes(range(32)), bytes(range(32, 64))

OPENINGS: dict[str, Any] = {
    "session": b"\1" + bytes(15),
    "round": 8,
    "queries": 4,
    "dim": 3,
    "metrics": 2,
    "max_share": 0.25,
    "server_model": 2,
    "statistics": 0b10111,
    "equal_weights": 1,
    "basis": b"\1" + bytes(31),
    "noise": 1.5,
    "fast": 1,
    "block": 1,
}
OTHER_PARAMETERS = {
    "cohort": Parameters(10, 1, 2, 3, 6, 3),
    "num_colluders": Parameters(9, 0, 2, 3, 6, 3),
    "num_dropouts": Parameters(9, 1, 1, 3, 6, 3),
    "min_honest": Parameters(9, 1, 2, 4, 6, 3),
    "degree": Parameters(9, 1, 2, 3, 8, 3),
    "threshold": Parameters(9, 1, 2, 3, 6, 4),
    "server_model": Parameters(9, 1, 1, 3, 6, 5, ServerModel.MALICIOUS),
}
QUESTIONS: dict[str, Any] = {
    "masked_sum": 2,
    "vector": 0,
    "mass": 10**20 + 1,
    "alive": b"\xfe\x01",
    "v": np.array([1.0, np.nextafter(np.float32(2), np.float32(3))], np.float32),
    "nu": float(np.nextafter(0.5, 1)),
    "levels": b"\1",
}


NONCE = bytes(range(16))


def made(
    opening: OpenRound, parameters: Parameters, leaves: Iterable[bytes], nonce: bytes = NONCE
) -> Cohort:
    """The cohort of these leaves, put in order."""
    order = in_order(nonce, list(leaves))
    return form_cohort(opening, parameters, nonce, order)


def cohorts() -> dict[str, Cohort]:
    """A cohort, and cohorts that differ from it in one thing."""
    found = {"same": made(OPENING, PARAMETERS, LEAVES)}
    for name, value in OPENINGS.items():
        opening = dataclasses.replace(OPENING, **{name: value})
        found[f"opening {name}"] = made(opening, PARAMETERS, LEAVES)
    for name, parameters in OTHER_PARAMETERS.items():
        leaves = LEAVES if parameters.cohort == 9 else (*LEAVES, b"\x77" * 32)
        found[f"parameters {name}"] = made(OPENING, parameters, leaves)
    found["nonce"] = made(OPENING, PARAMETERS, LEAVES, bytes(16))
    for index in range(9):
        leaves = (*LEAVES[:index], LEAVES[index][:31] + b"\xfe", *LEAVES[index + 1 :])
        found[f"leaf {index}"] = made(OPENING, PARAMETERS, leaves)
    return found


def context(cohort: Cohort, sum_request: SumRequest = QUESTION) -> bytes:
    point = point_of(sum_request.v, sum_request.nu, sum_request.levels)
    return context_of(cohort.digest, sum_request, point)


def contexts() -> dict[str, bytes]:
    """The context of a masked sum, and of masked sums that differ in one thing."""
    found = {name: context(cohort) for name, cohort in cohorts().items()}
    for name, value in QUESTIONS.items():
        sum_request = dataclasses.replace(QUESTION, **{name: value})
        found[f"request {name}"] = context(cohorts()["same"], sum_request)
    return found


def assert_all_differ(found: dict[str, bytes]) -> None:
    for (one, first), (other, second) in itertools.combinations(found.items(), 2):
        assert first != second, f"{one} and {other} are the same"


def test_the_variations_are_of_every_field() -> None:
    """So that a field that is added must be varied too."""
    assert [field.name for field in dataclasses.fields(OpenRound)] == list(OPENINGS)
    names = {field.name for field in dataclasses.fields(Parameters)}
    assert names - {"statistical"} == set(OTHER_PARAMETERS)
    asked = {field.name for field in dataclasses.fields(SumRequest)}
    assert asked - {"session", "sealed"} == set(QUESTIONS)


def test_the_context_of_a_masked_sum_is_bound_to_all_of_it() -> None:
    found = contexts()
    assert len(found) == 1 + 13 + 7 + 1 + 9 + 7
    assert_all_differ(found)
    assert context(cohorts()["same"]) == found["same"]


def test_masks_are_bound_to_the_context_and_the_pair() -> None:
    found = {name: pair_mask_key(AGREED, one, 2, 5) for name, one in contexts().items()}
    same = contexts()["same"]
    for one, other in ((2, 4), (3, 5), (1, 5), (0, 7)):
        found[f"pair {one} {other}"] = pair_mask_key(AGREED, same, one, other)
    found["secret"] = pair_mask_key(SEED, same, 2, 5)
    found |= {f"own {name}": self_mask_key(SEED, one) for name, one in contexts().items()}
    found["own of the agreed secret"] = self_mask_key(AGREED, same)
    assert_all_differ(found)
    assert_all_differ({name: keystream(key).update(bytes(16)) for name, key in found.items()})


def test_both_devices_of_a_pair_have_the_same_mask() -> None:
    same = contexts()["same"]
    assert pair_mask_key(AGREED, same, 2, 5) == pair_mask_key(AGREED, same, 5, 2)


def test_statistical_parameters_are_part_of_the_cohort() -> None:
    leaves = tuple(index.to_bytes(16, "big") * 2 for index in range(1000))
    certain = Parameters(1000, 20, 20, 250, 52, 28)
    chance = dataclasses.replace(certain, statistical=True)
    assert made(OPENING, certain, leaves).digest != made(OPENING, chance, leaves).digest


def test_seals_are_bound_to_the_cohort_source_target_and_masked_sum() -> None:
    found = {name: share_binding(cohort.digest, 2, 5, 1) for name, cohort in cohorts().items()}
    same = cohorts()["same"]
    for source, target, masked_sum in (
        (5, 2, 1),
        (2, 4, 1),
        (3, 5, 1),
        (2, 5, 0),
        (2, 5, 2),
        (1, 5, 2),
    ):
        found[f"{source} {target} {masked_sum}"] = share_binding(
            same.digest, source, target, masked_sum
        )
    assert_all_differ(found)


def test_keys_of_seals_are_bound_to_the_cohort_and_the_direction() -> None:
    found = {name: sealing_key(AGREED, cohort.digest, 2, 5) for name, cohort in cohorts().items()}
    same = cohorts()["same"]
    found["back"] = sealing_key(AGREED, same.digest, 5, 2)
    found["other"] = sealing_key(AGREED, same.digest, 2, 4)
    found["secret"] = sealing_key(SEED, same.digest, 2, 5)
    assert_all_differ(found)


def test_commitments_are_bound_to_the_cohort_the_device_and_the_masked_sum() -> None:
    found = {name: commitment_to(SEED, cohort.digest, 2, 1) for name, cohort in cohorts().items()}
    same = cohorts()["same"]
    found["position"] = commitment_to(SEED, same.digest, 1, 1)
    found["masked_sum"] = commitment_to(SEED, same.digest, 2, 2)
    found["swapped"] = commitment_to(SEED, same.digest, 1, 2)
    found["seed"] = commitment_to(SEED[:31] + b"\0", same.digest, 2, 1)
    assert_all_differ(found)


def test_consent_is_bound_to_the_context_and_the_survivors() -> None:
    found = {name: survivors_statement(one, b"\xff\x01") for name, one in contexts().items()}
    found["survivors"] = survivors_statement(contexts()["same"], b"\xff\x00")
    assert_all_differ(found)


def test_leaves_are_bound_to_the_opening_and_all_keys() -> None:
    keys = DeviceKeys(3, b"\1" * 32, (b"\2" * 32, b"\3" * 32))
    found = {"same": leaf_of(OPENING, keys)}
    for name, value in OPENINGS.items():
        found[name] = leaf_of(dataclasses.replace(OPENING, **{name: value}), keys)
    found["device"] = leaf_of(OPENING, replace(keys, device=4))
    found["sealing"] = leaf_of(OPENING, replace(keys, sealing_key=b"\4" * 32))
    found["order"] = leaf_of(OPENING, replace(keys, mask_keys=keys.mask_keys[::-1]))
    found["fewer"] = leaf_of(OPENING, replace(keys, mask_keys=keys.mask_keys[:1]))
    assert_all_differ(found)
    assert leaf_of(OPENING, replace(keys, signature=b"\5" * 64)) == found["same"]


def test_a_point_is_bound_to_every_bit_of_v_and_nu() -> None:
    found = {
        "zero": point_of(V[:0], 1.0),
        "nu": point_of(V[:0], 2.0),
        "zeros": point_of(0 * V, 1.0),
    }
    for bit in range(64):
        words = V.copy().view(np.uint64)
        words ^= np.uint64(1 << bit)
        found[f"bit {bit}"] = point_of(words.view(np.float32), 1.0)
    assert_all_differ(found)


def bound(context_before: bytes, cohort: Cohort) -> set[bytes]:
    """Keys and digests of all kinds."""
    return {
        pair_mask_key(AGREED, context_before, 2, 5),
        self_mask_key(SEED, context_before),
        sealing_key(AGREED, cohort.digest, 2, 5),
        share_binding(cohort.digest, 2, 5, 1),
        commitment_to(SEED, cohort.digest, 2, 1),
        context(cohort),
    }


def test_everything_is_bound_to_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before, cohort = contexts()["same"], cohorts()["same"]
    keys_and_digests = bound(before, cohort)
    monkeypatch.setattr(hashing, "PROTOCOL", b"rfa secure sum 2")
    assert not keys_and_digests & bound(before, cohort)
    assert made(OPENING, PARAMETERS, LEAVES).digest != cohort.digest


def test_leaves_are_one_for_each_device_in_the_order_of_the_nonce() -> None:
    order = made(OPENING, PARAMETERS, LEAVES).leaves
    with pytest.raises(CohortError, match="has 9 devices, but 8 are listed"):
        form_cohort(OPENING, PARAMETERS, NONCE, order[:8])
    swapped = (order[1], order[0], *order[2:])
    doubled = (order[0], *order[:8])
    for leaves in (swapped, doubled, tuple(sorted(order))):
        with pytest.raises(DuplicateKeyError, match="not in order, or a device is in it twice"):
            form_cohort(OPENING, PARAMETERS, NONCE, leaves)


def test_nobody_chooses_a_place_before_the_nonce_is_known() -> None:
    """The order under another nonce has nothing to do with that under the first."""
    leaves = [os.urandom(32) for _ in range(400)]
    orders = [
        made(OPENING, derive(400, num_colluders=1, num_dropouts=1), leaves, os.urandom(16)).leaves
        for _ in range(2)
    ]
    places = [[order.index(leaf) for leaf in sorted(leaves)] for order in orders]
    assert abs(np.corrcoef(places[0], places[1])[0, 1]) < 0.3
    assert abs(np.corrcoef(places[0], range(400))[0, 1]) < 0.3
