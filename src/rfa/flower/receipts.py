"""Receipts of a strategy: what a round on Flower leaves for whoever verifies it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord

from rfa.aggregators import Result, SumAggregator, spec_of
from rfa.aggregators.base import pack_state
from rfa.flower.arrays import named_arrays
from rfa.flower.checkpoint import Checkpoint
from rfa.flower.storage import read_identity, server_home
from rfa.receipts import Receipt, ReceiptBook
from rfa.receipts.models import digest_of
from rfa.receipts.receipt import FIRST
from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.messages.records import PartRecord

LOG = logging.getLogger("flwr")


def open_book(
    folder: Path | None, identity: Path | None, aggregator: SumAggregator[Any], state: Checkpoint
) -> ReceiptBook | None:
    """The book of a run's receipts, if it keeps one.

    Args:
        folder: the folder of the receipts; None for none.
        identity: the folder of the identity that signs them, which is made if there is none; by
            default `server` in RFA_HOME, or in ~/.rfa.
        aggregator: the aggregator.
        state: from where the run goes on.

    Raises:
        InvalidValueError: if no receipt could be written, or the folder is of another run.
        PluginError: if no text names the aggregator, so that nobody could run it again.
        VaultError: if there is no identity, and none can be made.
    """
    if folder is None:
        return None
    spec_of(aggregator, define=False)
    secret = read_identity(identity or server_home())
    LOG.info("receipts go to %s, signed by %s", folder, identity_of(secret).hex())
    return ReceiptBook(folder, secret, named_arrays(state.arrays), state.round)


def receipt_of(  # noqa: PLR0913
    t: int,
    aggregator: SumAggregator[Any],
    before: Checkpoint,
    *,
    devices: int,
    parts: tuple[PartRecord, ...],
    result: Result,
    state: Any,
    arrays: ArrayRecord,
) -> Receipt:
    """The receipt of a round; the book knows which one it follows.

    Args:
        t: the round.
        aggregator: the aggregator.
        before: where the server was before the round.
        devices: how many devices were ready.
        parts: what was summed over each part of them.
        result: what the aggregator made of the sums.
        state: what the aggregator carries to the next round.
        arrays: the model after the round.
    """
    return Receipt(
        t,
        FIRST,
        str(spec_of(aggregator, define=False)),
        devices,
        parts,
        pack_state(before.aggregator),
        pack_state(state),
        result.point,
        result.certificate,
        digest_of(named_arrays(before.arrays)),
        digest_of(named_arrays(arrays)),
    )
