"""All ops as functions: ``raw_ops.Sum(x, [0])`` adds a node to the graph of its inputs or to the default graph.

A family of ops calls those of other families here; it does not import the modules that declare them. Inputs are
positional or have their declared names; attrs are keyword arguments. ``raw_ops.pyi``, which ``make names`` writes, has
the signatures.
"""

from __future__ import annotations

from typing import Any

from tfmini.graph.op_types import OPS, op_names


def __getattr__(name: str) -> Any:
    handle = None if name.startswith("__") else OPS.get(name)
    if handle is None:
        raise AttributeError(f"there is no op {name!r}", name=name)
    globals()[name] = handle  # so that the next access does not come here
    return handle


def named(op_type: str) -> Any:
    """Returns the op of a name that is known only at run time, such as that of another op's type.

    Raises:
      KeyError: there is no such op.
    """
    return OPS[op_type]


def __dir__() -> list[str]:
    return sorted({*globals(), *op_names()})
