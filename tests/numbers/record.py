"""Write new numbers into `reference.json`: `python -m tests.numbers.record [NAME ...]`.

Only for numbers that changed on purpose, with a reason in the changelog. A change that was to keep
the numbers, and does not, is wrong: mend it, and leave the table as it is.

Without names, all entries are recorded, which needs RFA_DATA. A new entry is a line in the table
with no numbers yet. With names, only those entries are, on a machine with the same arithmetic as
the others.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.numbers import table


def record(names: Sequence[str]) -> None:
    """Record the entries of these names, or all."""
    known = table.read()
    here = {"arithmetic": table.arithmetic(), "protocol": table.protocol()}
    if names and any(known.get(name) != value for name, value in here.items()):
        sys.exit("the table is of other arithmetic, or of another protocol: record all of it")
    missing = set(names) - {entry["name"] for kind in table.KINDS for entry in known[kind]}
    if missing:
        sys.exit(f"no entry is called {', '.join(sorted(missing))}")
    for kind in table.KINDS:
        for entry in known[kind]:
            if names and entry["name"] not in names:
                continue
            found = table.measure(kind, entry)
            same = all(entry.get(name) == value for name, value in found.items())
            print("same   " if same else "CHANGED", entry["name"], flush=True)
            entry.update(found)
    table.write(known | here)


if __name__ == "__main__":
    record(sys.argv[1:])
