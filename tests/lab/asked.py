"""A process for tests of `rfa.lab.processes`: it does what it is asked to."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np

from rfa.lab.processes import ERROR, serve

remembered: list[Any] = []


def answer(request: dict[str, Any], tell: Any) -> dict[str, Any]:
    for share in request.get("tell", ()):
        tell(share)
    if "print" in request:
        print(request["print"])
    if "exit" in request:
        os._exit(request["exit"])
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
