"""The tasks of the lab, by name."""

from rfa._plugins import PluginError, load_plugin
from rfa.errors import InvalidValueError
from rfa.lab.tasks import digits, emnist, glyphs, sent140, shakespeare
from rfa.lab.tasks.task import Task

TASKS: dict[str, Task] = {
    task.name: task
    for task in emnist.TASKS + shakespeare.TASKS + sent140.TASKS + glyphs.TASKS + digits.TASKS
}


def find_task(name: str) -> Task:
    """The task of that name, or the user's own: module:name.

    Raises:
        ValueError: if there is none; the message lists those that there are.
    """
    if name in TASKS:
        return TASKS[name]
    if ":" not in name:
        msg = f"no task is called {name!r}: give one of {', '.join(TASKS)}, or module:name"
        raise InvalidValueError(msg)
    try:
        return load_plugin(name, Task, "an rfa.lab.tasks.task.Task")
    except PluginError as error:
        msg = f"task {error}"
        raise InvalidValueError(msg) from error
