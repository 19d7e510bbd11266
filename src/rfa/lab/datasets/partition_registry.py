"""The partitions by their names in the settings.

A text names a partition and its parameters, and so does a value:

    >>> find_partition("dirichlet:alpha=0.3")
    Dirichlet(alpha=0.3, seed=1, min_examples=10)

The name of your own partition is `module:NAME`, where NAME is a class or a value, and
`module:NAME:a=1` with parameters of the class; the same holds for a Partitioner of flwr-datasets.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from rfa._plugins import load_plugin
from rfa._specs import call_with, parse_spec
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.lab.datasets.partition import (
    ByDevice,
    ByPartitioner,
    Dirichlet,
    Iid,
    Partition,
    Pathological,
    Similarity,
    Size,
)
from rfa.lab.datasets.partitioner import Partitioner

BUILT_IN: dict[str, type[Partition]] = {
    kind.kind: kind for kind in (ByDevice, Iid, Dirichlet, Pathological, Similarity, Size)
}


def find_partition(given: str | Partition | Partitioner) -> Partition:
    """Return the partition that a text names; a value is returned unchanged.

    Raises:
        InvalidValueError: if there is no such partition or parameter, or a value is wrong.
        InvalidTypeError: if it is neither a text nor a partition.
        PluginError: if a module:NAME cannot be loaded.
    """
    if not isinstance(given, str):
        return _wrap(given)
    spec = parse_spec(given)
    if spec.name in BUILT_IN:
        return call_with(BUILT_IN[spec.name], spec.parameters, f"partition {spec.name}")
    if not spec.is_plugin or spec.name.partition(":")[0] in BUILT_IN:
        msg = f"no partition is called {given!r}: give one of {', '.join(BUILT_IN)}, with their "
        msg += "parameters as in 'dirichlet:alpha=0.3', or your own module:NAME"
        raise InvalidValueError(msg)
    value: Any = load_plugin(spec.name, object, "a Partition of rfa.lab.datasets.partition")
    if value is None:
        msg = f"partition {given!r}: {spec.name.partition(':')[0]} has no such name"
        raise InvalidValueError(msg)
    if isinstance(value, type):
        return _wrap(call_with(cast("type[Any]", value), spec.parameters, f"partition {spec.name}"))
    if spec.parameters:
        msg = (
            f"partition {given!r}: {spec.name} is a value, and takes no parameters: name its class"
        )
        raise InvalidValueError(msg)
    return _wrap(value)


def canonical_text(text: str) -> str:
    """Return the text of the same partition with all parameters; a user's own is unchanged.

    Raises:
        InvalidValueError, InvalidTypeError, PluginError: as `find_partition` does.
    """
    partition = find_partition(text)
    return str(partition) if partition.kind else text


def _wrap(value: Any) -> Partition:
    if isinstance(value, Partition):
        return value
    # a Partitioner exists only if its module is imported; do not import it here
    module = sys.modules.get("flwr_datasets.partitioner")
    if module is not None and isinstance(value, module.Partitioner):
        return ByPartitioner(value)
    msg = "a partition is a text such as 'iid', a Partition, or a Partitioner of flwr-datasets, "
    msg += f"not {value!r}"
    raise InvalidTypeError(msg)
