"""The tasks of the lab, by name."""

import functools

from rfa._plugins import PluginError, load_plugin
from rfa._specs import call_with, parse_spec
from rfa.errors import InvalidValueError
from rfa.lab.tasks import digits, emnist, emnist_digits, glyphs, sent140, shakespeare
from rfa.lab.tasks.task import Task

TASKS: dict[str, Task] = {
    task.name: task
    for module in (emnist, emnist_digits, shakespeare, sent140, glyphs, digits)
    for task in module.TASKS
}


def find_task(name: str) -> Task:
    """The task of that name, with parameters where it takes any, or the user's own: module:name.

    Raises:
        ValueError: if there is none; the message lists those that there are.
    """
    spec = parse_spec(name)
    if spec.name in TASKS:
        task = TASKS[spec.name]
        if not spec.parameters:
            return task
        if task.vary is None:
            msg = f"task {task.name} takes no parameters: remove {name[len(task.name) :]!r}"
            raise InvalidValueError(msg)
        vary = functools.partial(task.vary, task)
        return call_with(vary, spec.parameters, f"task {task.name}")
    if ":" not in name:
        msg = f"no task is called {name!r}: give one of {', '.join(TASKS)}, or module:name"
        raise InvalidValueError(msg)
    try:
        return load_plugin(name, Task, "an rfa.lab.tasks.task.Task")
    except PluginError as error:
        msg = f"task {error}"
        raise InvalidValueError(msg) from error


def canonical_task(name: str) -> str:
    """The one name of a task that the lab has, whatever parameters are spelled out; else as it is.

    Raises:
        ValueError: if a task of the lab does not take these parameters.
    """
    return find_task(name).name if parse_spec(name).name in TASKS else name
