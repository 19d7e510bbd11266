"""A process for tests of `rfa.lab.processes`: it does what it is asked to."""

from __future__ import annotations

import os
import resource
import time
from typing import Any

from rfa.lab.processes import ERROR, serve


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
    return {ERROR: request["fail"]} if "fail" in request else {"pid": os.getpid()}


if __name__ == "__main__":
    serve(answer)
