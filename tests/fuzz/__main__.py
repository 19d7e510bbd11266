"""`python -m tests.fuzz`: plays all targets for some minutes, and fails if anything has no name.

make fuzz MINUTES=10
python -m tests.fuzz --inputs 1000000 --seed 7
python -m tests.fuzz --seed 7 --target codec --at 123456    # that input again
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from tests.fuzz.engine import Report
from tests.fuzz.targets import HEAD, TARGETS, fuzz, show, total

FAILED = Path("fuzz-failures")


def main() -> int:
    """Fuzz as the command line says: 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long")
    parser.add_argument("--inputs", type=int, default=0, help="how many in place of how long")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--target", choices=list(TARGETS), help="this one only")
    parser.add_argument("--at", type=int, help="this input of the target only")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    if not (0 < given.minutes <= 24 * 60) or given.inputs < 0 or (given.at or 0) < 0:
        parser.error("--minutes must be above 0 (a day at most), --inputs and --at 0 or more")
    print(f"seed {given.seed}: give it as --seed to play the same inputs again", flush=True)
    names = [given.target] if given.target else list(TARGETS)
    print(HEAD, flush=True)
    reports: list[Report] = []
    for report in fuzz(
        names,
        given.seed,
        seconds=60 * given.minutes,
        inputs=given.inputs,
        at=given.at,
        processes=given.processes,
    ):
        print(show(report), flush=True)
        reports.append(report)
    print(show(total(reports)))
    for report in reports:
        seen: set[str] = set()
        for number, text in report.failures:
            FAILED.mkdir(exist_ok=True)
            path = FAILED / f"{report.target}-{given.seed}-{number}.txt"
            path.write_text(text)
            kind = text.strip().splitlines()[-1]
            print(f"\n{path}:" + ("" if kind in seen else f"\n{text[:3000]}"))
            seen.add(kind)
    return int(any(report.failures for report in reports))


if __name__ == "__main__":
    sys.exit(main())
