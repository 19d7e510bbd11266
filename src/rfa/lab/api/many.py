"""Many runs at the same time, each in its own process."""

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
    """Say how long runs take, and do those that are not done.

    Args:
        runs: the settings of the runs; the same settings are the same run.
        out: the folder of results.
        data_dir: the folder of data sets; by default RFA_DATA.
        jobs: how many runs to do at the same time; by default one per processor.
        fresh: do all runs again, even those that are done.
        progress: whether to show a bar; by default in terminals and notebooks.
        dry_run: only say how long it takes.
        more: seconds that come after the runs.

    Returns:
        The reasons why runs failed, by the name of the run.

    Raises:
        DataError: if a library that runs or pictures need is missing; the message says what to
            install.
    """
    if not dry_run:
        for name in ("threadpoolctl", "matplotlib"):
            check_installed(name)
    options = Options(out, data_dir, checkpoint_every=CHECKPOINT_EVERY, fresh=fresh, rebuild=fresh)
    work = plan_work(runs, options, jobs)
    work = dataclasses.replace(work, seconds=work.seconds + more)
    with choose_overview(work, progress) as overview:
        return do_work(work, options, overview) if work.todo and not dry_run else {}
