"""The list of public identities is read in one way, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.errors import VaultError
from rfa.secagg.security.identities import read_identities

ONE, OTHER = (identity_of(bytes([i]) * 32).hex() for i in (1, 2))


def test_identities_are_read_by_node(tmp_path: Path) -> None:
    path = tmp_path / "identities.json"
    path.write_text(json.dumps({"0": ONE, str(2**64 - 1): OTHER}))
    assert read_identities(path) == {0: bytes.fromhex(ONE), 2**64 - 1: bytes.fromhex(OTHER)}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f'{{"1": "{ONE}", "1": "{OTHER}"}}', "node '1' is listed twice"),
        (f'{{"1": "{ONE}", "1": "{ONE}"}}', "node '1' is listed twice"),
        (f'{{"1": "{ONE}", "01": "{OTHER}"}}', "'01' is not a node"),
        (f'{{" 1_0 ": "{ONE}"}}', "' 1_0 ' is not a node"),
        (f'{{"1_0": "{ONE}"}}', "'1_0' is not a node"),
        (f'{{"+1": "{ONE}"}}', r"'\+1' is not a node"),
        (f'{{"-1": "{ONE}"}}', "'-1' is not a node"),
        (f'{{"\u0661": "{ONE}"}}', "'\u0661' is not a node"),
        (f'{{"": "{ONE}"}}', "'' is not a node"),
        (f'{{"{2**64}": "{ONE}"}}', f"'{2**64}' is not a node"),
        (f'{{"{"9" * 5000}": "{ONE}"}}', "is not a node"),
        ('{"7": "00ff"}', "the identity of node '7' is not 64 hexadecimal digits"),
        (f'{{"7": "{ONE[:-1]} "}}', "the identity of node '7' is not 64"),
        (f'{{"7": "{" ".join(ONE)}"}}', "the identity of node '7' is not 64"),
        ('{"7": 7}', "the identity of node '7' is not 64"),
        (f'{{"7": {{"8": "{ONE}"}}}}', "the identity of node '7' is not 64"),
        (f'[["7", "{ONE}"]]', "public identities of all nodes"),
        ("7", "public identities of all nodes"),
        ("[" * 100_000, "public identities of all nodes"),
    ],
    ids=lambda text: text[:12],
)
def test_a_list_that_can_be_read_in_two_ways_is_refused_by_name(
    tmp_path: Path, text: str, named: str
) -> None:
    path = tmp_path / "identities.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(VaultError, match=named):
        read_identities(path)
