"""A process for tests of `rfa.lab.processes`: it does what it is asked to."""

from __future__ import annotations

import os
import time
from typing import Any

from rfa.lab.processes import ERROR, serve


def answer(request: dict[str, Any], tell: Any) -> dict[str, Any]:
    for share in request.get("tell", ()):
        tell(share)
    if "print" in request:
        print(request["print"])
    if "exit" in request:
        os._exit(request["exit"])
    time.sleep(request.get("sleep", 0))
    return {ERROR: request["fail"]} if "fail" in request else {"pid": os.getpid()}


def main() -> None:
    serve(answer)


if __name__ == "__main__":
    main()
