"""Receipts: signed records of rounds, with which anyone can check offline how sums were used.

    rfa verify receipts/*.rfa --server-key HEX

A receipt states who took part, the queries, the sums, and the step. Verification runs the
aggregator again on the recorded sums. docs/receipts.md explains what this proves, and to whom.
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
