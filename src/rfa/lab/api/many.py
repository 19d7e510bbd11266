"""Many runs at once, each in a process of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from rfa.lab.datasets.dataset import check_installed
from rfa.lab.runs.jobs import do_work, plan_work
from rfa.lab.runs.progress import choose_overview
from rfa.lab.runs.run import Options
from rfa.lab.settings.settings import Settings

CHECKPOINT_EVERY = 50


def run_many(  # noqa: PLR0913 how runs are done
    runs: Iterable[Settings],
    out: Path,
    *,
    data_dir: Path | None = None,
    jobs: int = 0,
    fresh: bool = False,
    progress: bool | None = None,
    dry_run: bool = False,
    more: float = 0.0,
) -> dict[str, str]:
    """Say how long runs take, and do those that are not done already.

    Args:
        runs: the settings of the runs; the same settings are the same run.
        out: the folder of results.
        data_dir: the folder of data sets; by default what RFA_DATA says.
        jobs: runs at once; by default one for each processor.
        fresh: do runs anew that are done already.
        progress: show a bar: by default in terminals and notebooks.
        dry_run: only say how long it takes.
        more: seconds that come after the runs.

    Returns:
        The problems of the runs that could not be done, by name.

    Raises:
        DataError: saying what to install, if what runs need, or what draws them, is missing.
    """
    if not dry_run:
        for name in ("threadpoolctl", "matplotlib"):
            check_installed(name)
    options = Options(out, data_dir, checkpoint_every=CHECKPOINT_EVERY, fresh=fresh, rebuild=fresh)
    work = plan_work(runs, options, jobs)
    work = dataclasses.replace(work, seconds=work.seconds + more)
    with choose_overview(work, progress) as overview:
        return do_work(work, options, overview) if work.todo and not dry_run else {}
