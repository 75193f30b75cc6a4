"""Every public function and class of TensorFlow 1.15 is there with its arguments, or says what to use instead.

``api_v1.txt`` lists TensorFlow's names and arguments, one per line.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf

LINES = Path(__file__).with_name("api_v1.txt").read_text().splitlines()
# Classes that users do not make themselves: their constructors are ours.
MADE_BY_TFMINI = frozenset(
    {"tf.DType", "tf.dtypes.DType", "tf.Operation", "tf.Tensor", "tf.RaggedTensor", "tf.data.Dataset",
     "tf.data.Iterator", "tf.distribute.Strategy", "tf.distribute.ReplicaContext"}
)  # fmt: skip
# TensorFlow says (*args, **kwargs) here; the real names are better.
NAMED_HERE = frozenset({"DeviceWrapper", "DropoutWrapper", "ResidualWrapper"})


def arguments(line: str) -> list[str]:
    """The argument names of ``name(a, b, *args)``, without stars."""
    inside = line.partition("(")[2].rstrip(")")
    return [name for name in inside.split(", ") if name and not name.startswith("*")]


def found(name: str) -> Any:
    """The object of a public name, or None where it is refused by name as out of scope."""
    value: Any = tf
    try:
        for part in name.split(".")[1:]:
            value = getattr(value, part)
    except AttributeError as error:
        assert "is out of tfmini's scope; use" in str(error), error
        return None
    return value


def own_arguments(value: Any, is_class: bool) -> tuple[list[str], bool]:
    """The parameter names, and whether any others are taken as well."""
    function = value.__init__ if is_class else value
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    open_ended = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)], open_ended


NAMESPACES = sorted({line.removeprefix("class ").partition("(")[0].rpartition(".")[0] for line in LINES})


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_arguments_are_those_of_tensorflow(namespace: str) -> None:
    wrong = []
    for line in LINES:
        is_class = line.startswith("class ")
        name = line.removeprefix("class ").partition("(")[0]
        if name.rpartition(".")[0] != namespace or name in MADE_BY_TFMINI or name.rpartition(".")[2] in NAMED_HERE:
            continue
        value = found(name)
        if value is None or "(" not in line:
            continue
        wanted = arguments(line)
        try:
            own, open_ended = own_arguments(value, is_class)
        except (TypeError, ValueError):  # a builtin or an enumeration: it has no signature to read
            continue
        length = min(len(own), len(wanted)) if open_ended else len(wanted)
        if own[:length] != wanted[:length]:
            wrong.append(f"{name}: has {own}, TensorFlow {wanted}")
    assert wrong == []
