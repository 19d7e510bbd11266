"""Fixed vectors of the protocol: what they are of, and how the library computes them.

`python -m tests.secagg.vectors` writes vectors.json anew, for a new version of the protocol.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from rfa.privacy import NoisySum
from rfa.radii import Radii
from rfa.secagg.crypto.gaussian import NoiseStream, boundaries_of
from rfa.secagg.crypto.keys import agree, identity_of, public_of, seal, sign
from rfa.secagg.crypto.masks import keystream
from rfa.secagg.crypto.shares import SHARE_SIZE, split
from rfa.secagg.fixed_point import Contribution, Encoding
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import DeviceKeys, SumRequest
from rfa.secagg.security.cohort import form_cohort, in_order
from rfa.secagg.security.parameters import Parameters
from rfa.secagg.statistics import mask_of
from rfa.secagg.transcript import (
    PROTOCOL,
    commitment_to,
    context_of,
    derive_key,
    digest,
    leaf_of,
    noise_key,
    pair_mask_key,
    point_of,
    sealing_key,
    self_mask_key,
    share_binding,
)
from tests.secagg.samples import SAMPLES, SESSION, UNSIGNED, span

FILE = Path(__file__).with_name("vectors.json")
VECTORS: dict[str, Any] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
Vector = dict[str, Any]


def plain(value: Any) -> Any:
    """A value for JSON: bytes in hexadecimal, whole numbers beyond 2^53 as text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, DeviceKeys):
        return plain(dataclasses.astuple(value))
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return str(value) if isinstance(value, int) and abs(value) >= 2**53 else value


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


def raws(texts: list[str]) -> list[bytes]:
    return [raw(text) for text in texts]


def fields_of(message: Any) -> Vector:
    return {one.name: plain(getattr(message, one.name)) for one in dataclasses.fields(message)}


def run_key(given: Vector) -> Vector:
    made = derive_key(raw(given["secret"]), raw(given["label"]), *raws(given["parts"]))
    return {"key": made.hex()}


def run_digest(given: Vector) -> Vector:
    return {"digest": digest(raw(given["label"]), *raws(given["parts"])).hex()}


def run_pair(given: Vector) -> Vector:
    (agreed,) = agree(raw(given["secret"]), [raw(given["public"])])
    key = pair_mask_key(agreed, raw(given["context"]), given["one"], given["other"])
    stream = keystream(key).update(bytes(32))
    return {"agreed": agreed.hex(), "key": key.hex(), "stream": stream.hex()}


def run_self(given: Vector) -> Vector:
    key = self_mask_key(raw(given["seed"]), raw(given["context"]))
    return {"key": key.hex(), "stream": keystream(key).update(bytes(32)).hex()}


def run_shares(given: Vector) -> Vector:
    drawn = raw(given["entropy"])
    found = split(
        raw(given["secret"]),
        count=given["count"],
        threshold=given["threshold"],
        entropy=lambda size: drawn[:size],
    )
    return {"shares": [share.to_bytes(SHARE_SIZE, "big").hex() for share in found]}


def run_encoding(given: Vector) -> Vector:
    update = np.array(given["update"], np.float32)
    contribution = Contribution(update, given["weight"], tuple(given["metrics"]))
    v = np.array(given["v"], np.float32)
    part = Encoding(given["cohort"]).encode(contribution, v, given["nu"], raw(given["rounding"]))
    return {"words": plain(part.words), "tail": [str(value) for value in part.tail]}


def run_block_encoding(given: Vector) -> Vector:
    """Words with votes, where each block has a radius of its own."""
    code = Encoding(given["cohort"], mask_of(("weight",)), block=given["size"])
    part = code.encode(
        Contribution(np.array(given["update"], np.float32), given["weight"]),
        np.array(given["v"], np.float32),
        Radii(np.array(given["levels"], np.uint8), given["size"]),
        raw(given["rounding"]),
    )
    words, tail = plain(part.words), [str(value) for value in part.tail]
    return {"scale": code.scale, "bits": code.bits, "words": words, "tail": tail}


def run_noise(given: Vector) -> Vector:
    """Samples from a stream, and the boundaries of the middle of their distribution."""
    stream, middle = NoiseStream(given["std"], raw(given["key"])), boundaries_of(given["std"])
    drawn = [*stream.draw(1).tolist(), *stream.draw(given["count"] - 1).tolist()]
    half = len(middle) // 2
    return {
        "largest": half,
        "boundaries": [str(one) for one in middle[half - 2 : half + 2]],
        "samples": drawn,
    }


def run_noise_key(given: Vector) -> Vector:
    return {"key": noise_key(raw(given["secret"]), given["masked_sum"]).hex()}


def run_noisy_encoding(given: Vector) -> Vector:
    scales = NoisySum(given["cohort"], given["honest"], given["multiplier"], len(given["update"]))
    code = Encoding(given["cohort"], mask_of(("mass", "near")), True, scales)
    part = code.encode(
        Contribution(np.array(given["update"], np.float32), equal_weights=True),
        np.array(given["v"], np.float32),
        given["nu"],
        raw(given["rounding"]),
        noise=raw(given["noise"]),
    )
    return {
        "std": scales.std,
        "scales": [scales.scale, scales.mass_scale, scales.near_scale],
        "words": plain(part.words),
        "tail": [str(value) for value in part.tail],
    }


def run_sealed(given: Vector) -> Vector:
    sealed = seal(raw(given["key"]), given["masked_sum"], raw(given["plain"]), raw(given["bound"]))
    return {"sealed": sealed.hex()}


def run_signature(given: Vector) -> Vector:
    secret = raw(given["secret"])
    signature = sign(secret, raw(given["statement"]))
    return {"public": identity_of(secret).hex(), "signature": signature.hex()}


def run_cohort(given: Vector) -> Vector:
    opening, sum_request = decode(raw(given["opening"])), decode(raw(given["sum_request"]))
    assert isinstance(opening, OpenRound)
    assert isinstance(sum_request, SumRequest)
    nonce = raw(given["nonce"])
    order = in_order(nonce, list(raws(given["leaves"])))
    cohort = form_cohort(opening, Parameters(*given["parameters"]), nonce, order)
    point = point_of(sum_request.v, sum_request.nu)
    found = {
        "leaf": leaf_of(opening, UNSIGNED),
        "first": order[0],
        "digest": cohort.digest,
        "point": point,
        "context": context_of(cohort.digest, sum_request, point),
        "commitment": commitment_to(raw(given["seed"]), cohort.digest, 1, 2),
        "binding": share_binding(cohort.digest, 1, 2, 0),
        "seal_key": sealing_key(raw(given["seed"]), cohort.digest, 1, 2),
    }
    return {name: value.hex() for name, value in found.items()}


RUNS = {
    "derive_key": run_key,
    "digest": run_digest,
    "pair_mask": run_pair,
    "self_mask": run_self,
    "shares": run_shares,
    "encoding": run_encoding,
    "block_encoding": run_block_encoding,
    "noise": run_noise,
    "noise_key": run_noise_key,
    "noisy_encoding": run_noisy_encoding,
    "sealed": run_sealed,
    "signature": run_signature,
    "cohort": run_cohort,
}
"""How what a vector gives leads to what it expects."""


PARTS = [[], [b""], [b"ab"], [b"a", b"b"], [span(0, 40), b"", b"\0"]]


def givens() -> dict[str, list[Vector]]:
    """What the vectors are of."""
    labeled = [{"label": label, "parts": parts} for label in (b"", b"label") for parts in PARTS]
    seed, context = span(40, 32), span(80, 32)
    public = public_of(span(5, 32))
    asked = dataclasses.replace(SAMPLES[4], session=SESSION)
    update = {"update": [0.1, -2.5, 0.0, 3e30], "weight": 0.3, "metrics": [-1.5, 0.1]}
    return {
        "derive_key": [{"secret": seed, **case} for case in labeled],
        "digest": labeled,
        "pair_mask": [
            {"secret": seed, "public": public, "context": context, "one": one, "other": other}
            for one, other in ((0, 1), (1, 0), (3, 70_000))
        ],
        "self_mask": [{"seed": seed, "context": context}, {"seed": bytes(32), "context": context}],
        "shares": [
            {"secret": secret, "count": n, "threshold": t, "entropy": span(3, 48 * (t - 1))}
            for secret, n, t in ((seed, 5, 3), (b"\xff" * 32, 2, 2), (bytes(32), 3, 1))
        ],
        "block_encoding": [
            {
                "cohort": cohort,
                "size": size,
                "update": [0.5, -2.0, 0.0, 1e-7, 3e38],
                "weight": 0.75,
                "v": v,
                "levels": list(range(0, 160, 32))[: -(-5 // size)],
                "rounding": span(40, 16),
            }
            for cohort, size, v in ((3, 1, []), (100, 2, [0.25, 0.0, -1.0, 0.0, 2.0]))
        ],
        "encoding": [
            {**update, "cohort": n, "v": v, "nu": nu, "rounding": seed[:16]}
            for n, v, nu in ((1, [], 1.0), (100, [0.1, -2.5, 0.0, 2e30], 1e30), (1000, [], 1e32))
        ],
        "noise": [
            {"std": std, "key": key, "count": 9}
            for std, key in ((16, seed[:16]), (2048, seed[:16]), (2048, bytes(16)))
        ],
        "noise_key": [{"secret": seed, "masked_sum": number} for number in (0, 1)],
        "noisy_encoding": [
            {
                "update": [0.1, -2.5, 0.0, 3e30],
                "cohort": n,
                "honest": honest,
                "multiplier": z,
                "v": [],
                "nu": nu,
                "rounding": seed[:16],
                "noise": seed[16:],
            }
            for n, honest, z, nu in ((3, 3, 0.5, 1.0), (10, 7, 1.2, 1e32), (1000, 700, 6.4, 1e30))
        ],
        "sealed": [{"key": seed, "masked_sum": 3, "plain": span(7, 66), "bound": context}],
        "signature": [{"secret": seed, "statement": context}],
        "cohort": [
            {
                "opening": SAMPLES[0].encode(),
                "sum_request": asked.encode(),
                "parameters": [4, 0, 0, 3, 2, 2],
                "nonce": span(4, 16),
                "leaves": [span(start, 32) for start in (1, 2, 3, 4)],
                "seed": seed,
            }
        ],
    }


def refused() -> list[Vector]:
    """Bytes that are no message, with the error that says so."""
    first, masked = SAMPLES[0].encode(), SAMPLES[5].encode()
    head = first[:4]
    minus_zero, infinite = bytes(7) + b"\x80", bytes.fromhex("000000000000f07f")
    wrong = [
        ("no bytes", "TruncatedError", b""),
        ("only a header", "TruncatedError", first[:5]),
        ("a byte is missing", "TruncatedError", masked[:-1]),
        ("a count beyond the end", "TruncatedError", masked[:-6] + b"\3" + masked[-5:]),
        ("a byte too many", "OversizedError", first + b"\0"),
        (
            "a list beyond its cap",
            "OversizedError",
            head + b"\4" + bytes(3) + SESSION + b"\xff" * 4,
        ),
        ("another magic", "UnknownVersionError", b"rfb" + first[3:]),
        ("another version", "UnknownVersionError", b"rfa\1" + first[4:]),
        ("no kind 0", "UnknownKindError", head + b"\0" + first[5:]),
        ("no kind 15", "UnknownKindError", head + b"\x0f" + first[5:]),
        ("minus zero", "NotCanonicalError", first[:44] + minus_zero + first[52:]),
        (
            "a header that is not padded with zeros",
            "NotCanonicalError",
            first[:7] + b"\1" + first[8:],
        ),
        ("infinity", "NotCanonicalError", first[:44] + infinite + first[52:]),
        ("noise of minus zero", "NotCanonicalError", first[:-13] + minus_zero + first[-5:]),
        ("infinite noise", "NotCanonicalError", first[:-13] + infinite + first[-5:]),
        ("no noise at all", "TruncatedError", first[:-13]),
        ("not said whether it is fast", "TruncatedError", first[:-5]),
        ("no size of blocks", "TruncatedError", first[:-4]),
    ]
    return [{"why": why, "error": error, "bytes": data.hex()} for why, error, data in wrong]


def refused_openings() -> list[Vector]:
    """Openings of which parts do not go with each other, with the error of the device."""
    fine = OpenRound(SESSION, 3, 1, 4, 0, 0.0, 1, 0b11001, 1, bytes(32), 1.25)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("noise below zero", {"noise": -1.25}),
        ("weights by examples", {"equal_weights": 0}),
        ("metrics without noise", {"metrics": 1}),
        ("a limit on shares", {"max_share": 0.5}),
        ("squares without noise", {"statistics": 0b11011}),
        ("fast in a way that there is not", {"fast": 2}),
        ("fast with a limit on shares", {"fast": 1, "noise": 0.0, "max_share": 0.5}),
        ("blocks with noise", {"block": 2, "statistics": 0b10000}),
        ("blocks with masses", {"block": 2, "noise": 0.0}),
        ("blocks in two queries", {"block": 2, "noise": 0.0, "statistics": 0b10000, "queries": 2}),
        (
            "a block of one coordinate, and weights",
            {"block": 3, "noise": 0.0, "statistics": 0b10100, "equal_weights": 0},
        ),
    ]
    return [
        {
            "why": why,
            "error": "NotCanonicalError",
            "bytes": dataclasses.replace(fine, **changes).encode().hex(),
        }
        for why, changes in wrong
    ]


def write() -> None:
    """Write the file."""
    found: dict[str, Any] = {"protocol": PROTOCOL.decode()}
    for name, several in givens().items():
        given = [{key: plain(value) for key, value in one.items()} for one in several]
        found[name] = [{"given": one, "expected": RUNS[name](one)} for one in given]
    found["messages"] = [
        {"kind": type(one).__name__, "fields": fields_of(one), "bytes": one.encode().hex()}
        for one in SAMPLES
    ]
    found["refused"] = refused()
    found["refused_openings"] = refused_openings()
    field = 2**255 - 19
    low = [number.to_bytes(32, "little") for number in (0, 1, field - 1, field, field + 1)]
    low += raws(
        [
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        ]
    )
    low += [point[:31] + bytes([point[31] | 0x80]) for point in low]
    found["low_order"] = plain(low)
    beyond = [*range(field + 2, 2**255), *(9 + (1 << 255) + one for one in range(19))]
    found["not_canonical"] = plain([number.to_bytes(32, "little") for number in beyond])
    FILE.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    write()
