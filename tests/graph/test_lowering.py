"""The table of lowerings: each is of an op with a kernel, and the page on devices lists it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.op_modules import room_of
from tfmini.graph.lowering import lower, lowering_of, lowerings
from tfmini.graph.op_types import KERNELS, OPS

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "devices.md"


def test_each_lowering_is_of_an_op_with_a_kernel() -> None:
    """The compiler asks the kernel for the op's form, and runs it where all inputs are known."""
    assert [name for name in lowerings() if (name, "CPU") not in KERNELS] == []


def test_host_inputs_are_inputs() -> None:
    wrong = [
        (name, sorted(rule.host - {arg.name for arg in OPS[name].op_def.inputs})) for name, rule in lowerings().items()
    ]
    assert [entry for entry in wrong if entry[1]] == []


def test_attrs_are_attrs() -> None:
    special = {"node"}
    wrong = {name: set(rule.bound) - special - OPS[name].op_def.attrs.keys() for name, rule in lowerings().items()}
    assert {name: attrs for name, attrs in wrong.items() if attrs} == {}


def test_the_page_on_devices_lists_all() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    listed = {(room, name, i == 1) for room, *parts in rows for i, part in enumerate(parts) for name in part.split()}
    ours = {(room_of(name), name, rule.on_host) for name, rule in lowerings().items()}
    assert listed - {entry for entry in listed if entry[1] == "-"} == ours


def test_a_lowering_of_no_op_or_a_second_one_is_refused() -> None:
    with pytest.raises(ValueError, match="Reluu is no op"):
        lower("Reluu")(lambda x: x)
    assert lowering_of("Relu") is not None
    with pytest.raises(ValueError, match="Relu has a lowering already"):
        lower("Relu")(lambda x: x)
