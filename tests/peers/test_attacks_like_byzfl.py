"""Attacks that byzfl has too are the same, where all devices weigh the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.lab.attacks.corruption import UpdateAttack, forge
from rfa.lab.attacks.literature import EPSILON, alie_deviations
from rfa.lab.attacks.registry import BUILT_IN
from tests.peers.byzfl_attacks import load_attacks

BYZFL = load_attacks()
DEVICES, BAD, DIM = 15, 4, 30


def attack_on(seed: int) -> UpdateAttack:
    """Honest updates come first, corrupted ones last."""
    rng = np.random.default_rng(seed)
    return UpdateAttack(
        round=0,
        model=np.zeros(DIM, np.float32),
        updates=(1 + rng.standard_normal((DEVICES, DIM))).astype(np.float32),
        weights=np.full(DEVICES, 7.0),
        corrupted=np.arange(DEVICES - BAD, DEVICES),
        rng=rng,
    )


def theirs(name: str, attack: UpdateAttack) -> Any:
    """What byzfl's corrupted devices send; its factors count up, ours down."""
    z = -alie_deviations(DEVICES, BAD)
    makers: dict[str, Any] = {
        "ipm": BYZFL.InnerProductManipulation(EPSILON),
        "alie": BYZFL.ALittleIsEnough(z),
    }
    return makers[name](attack.updates[:-BAD].astype(np.float64))


@pytest.mark.parametrize("name", ["ipm", "alie"])
@pytest.mark.parametrize("seed", range(3))
def test_the_same_vector(name: str, seed: int) -> None:
    attack = attack_on(seed)
    for row in forge(BUILT_IN[name], attack, name):
        assert np.allclose(row, theirs(name, attack), rtol=1e-5, atol=1e-5)


def test_its_flipped_sign_is_our_manipulation_at_full_length_and_ours_keeps_devices_apart() -> None:
    attack = attack_on(0)
    flipped = BYZFL.SignFlipping()(attack.updates[:-BAD].astype(np.float64))
    assert np.allclose(forge(BUILT_IN["ipm"], attack, "ipm") / EPSILON, flipped, atol=1e-5)
    for device, row in enumerate(forge(BUILT_IN["sign-flip"], attack, "sign-flip"), DEVICES - BAD):
        assert np.allclose(row, BYZFL.SignFlipping()(attack.updates[[device]]), atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_mimic_is_theirs_of_one_of_the_honest(seed: int) -> None:
    attack = attack_on(seed)
    rows = forge(BUILT_IN["mimic"], attack, "mimic")
    same = [
        who
        for who in range(DEVICES - BAD)
        if np.array_equal(rows[0], BYZFL.Mimic(epsilon=who)(attack.updates[:-BAD]))
    ]
    assert len(same) == 1
