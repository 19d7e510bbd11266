"""A process for tests of `rfa.lab.processes`: it does what it is asked to."""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import Any

import numpy as np

from rfa.lab.processes import ERROR, serve

remembered: list[Any] = []


def new_pages(sizes: list[int]) -> int:
    """How many pages the system has to give for arrays that live together."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [b"\1" * size for size in sizes]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    del held
    return after - before


def answer(request: dict[str, Any], tell: Any) -> dict[str, Any]:
    for share in request.get("tell", ()):
        tell(share)
    if "print" in request:
        print(request["print"])
    if "exit" in request:
        os._exit(request["exit"])
    if "allocate" in request:
        return {"faults": [new_pages(request["allocate"]) for _ in range(4)][-1]}
    time.sleep(request.get("sleep", 0))
    if "fail" in request:
        return {ERROR: request["fail"]}
    if "look" in request:
        return look()
    return {"pid": os.getpid()}


def look() -> dict[str, Any]:
    """What a process finds around itself; it remembers that it looked."""
    remembered.append(True)
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "looked": len(remembered),
        "variable": os.environ.get("RFA_TEST_VARIABLE"),
        "threads": os.environ["OMP_NUM_THREADS"],
        "directory": os.getcwd(),  # noqa: PTH109 as text
        "path": sys.path,
        "arguments": sys.argv[1:],
        "random": np.random.random(),
    }


def main() -> None:
    serve(answer)


if __name__ == "__main__":
    main()
