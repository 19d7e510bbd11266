"""Errors as the user sees them: one line, and an exit code."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Generator

import click

from rfa.errors import PluginError, RfaError
from rfa.lab.lock import LockedError

DIVERGED, LOCKED, INTERRUPTED = 3, 4, 130
EPILOG = """\b
Exit codes:
  0    the run finished
  1    the run failed; the message says why; the same command resumes it
  2    an argument or option is wrong
  3    the run diverged; its results are kept
  4    another process is doing the same run
  130  the run was interrupted; the same command resumes it
"""


@contextlib.contextmanager
def user_errors() -> Generator[None]:
    """Turn the errors that a user can do something about into one line and an exit code.

    An invalid value (each is a ValueError, too) and a module:NAME that cannot be loaded are
    mistakes on the command line. Any other exception is a mistake of ours: it keeps its traceback.
    """
    try:
        yield
    except LockedError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(LOCKED)
    except RfaError as error:
        kind = click.UsageError if isinstance(error, ValueError | PluginError) else None
        raise (kind or click.ClickException)(str(error)) from None
    except BrokenPipeError:  # click ends the command without a message
        raise
    except (OSError, ImportError, sqlite3.Error) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        click.echo("interrupted: the same command resumes it", err=True)
        sys.exit(INTERRUPTED)
