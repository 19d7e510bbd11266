"""Receipts of a strategy: the signed records of rounds on Flower."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from flwr.app import ArrayRecord

from rfa.aggregators import SumAggregator, spec_of
from rfa.aggregators.base import pack_state
from rfa.flower.arrays import named_arrays
from rfa.flower.checkpoint import Checkpoint
from rfa.flower.options import SecureOptions
from rfa.flower.storage import read_identity, server_home
from rfa.flower.trained import TrainedRound
from rfa.receipts import Receipt, ReceiptBook
from rfa.receipts.models import digest_of
from rfa.receipts.receipt import FIRST
from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.messages.records import PartRecord
from rfa.secagg.server.recorder import Recorder

LOG = logging.getLogger("flwr")


def open_book(
    options: SecureOptions, aggregator: SumAggregator[Any], state: Checkpoint
) -> ReceiptBook | None:
    """Return the book of a run's receipts; None if it keeps none.

    Args:
        options: the folder of the receipts, and of the identity that signs them.
        aggregator: the aggregator.
        state: the state from which the run continues.

    Raises:
        InvalidValueError: if no receipt could be written, or the folder belongs to another run.
        PluginError: if no text names the aggregator, so nobody could run it again.
        VaultError: if there is no identity, and none can be created.
    """
    folder = options.receipts
    if folder is None:
        return None
    spec_of(aggregator, define=False)
    secret = read_identity(options.receipts_identity or server_home())
    LOG.info("receipts go to %s, signed by %s", folder, identity_of(secret).hex())
    return ReceiptBook(folder, secret, named_arrays(state.arrays), state.round)


def records_of(recorders: Sequence[Recorder] | None) -> tuple[PartRecord, ...]:
    """Return the records of the parts; empty if there are no recorders."""
    return tuple(recorder.part for recorder in recorders or ())


def receipt_of(
    t: int,
    aggregator: SumAggregator[Any],
    before: Checkpoint,
    done: TrainedRound,
    arrays: ArrayRecord,
) -> Receipt:
    """Return the receipt of a round; the book adds the link to the receipt before.

    Args:
        t: the round.
        aggregator: the aggregator.
        before: the state of the server before the round.
        done: the result of the round.
        arrays: the model after it.
    """
    return Receipt(
        t,
        FIRST,
        str(spec_of(aggregator, define=False)),
        done.devices,
        done.parts,
        pack_state(before.aggregator),
        pack_state(done.state),
        done.result.point,
        done.result.certificate,
        digest_of(named_arrays(before.arrays)),
        digest_of(named_arrays(arrays)),
    )
