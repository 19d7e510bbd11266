"""Receipts: a signed record a round, with which anyone checks offline what became of the sums.

    rfa verify receipts/*.rfa --server-key HEX

A receipt says who took part, what they were asked, what the sums were, and which step they made.
Verification runs the aggregator again on the recorded sums. See docs/receipts.md for what is proven
to whom.
"""

from rfa.receipts.audit import check_total
from rfa.receipts.book import ReceiptBook
from rfa.receipts.check import Expected, Verified, Verifier
from rfa.receipts.errors import ReceiptError
from rfa.receipts.models import read_model, write_model
from rfa.receipts.receipt import Receipt, read_receipt, write_receipt

__all__ = [
    "Expected",
    "Receipt",
    "ReceiptBook",
    "ReceiptError",
    "Verified",
    "Verifier",
    "check_total",
    "read_model",
    "read_receipt",
    "write_model",
    "write_receipt",
]
