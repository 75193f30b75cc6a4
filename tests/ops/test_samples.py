"""Every op has a sample, and every sample is right: dtypes, shapes, values, gradients (see `samples/notation.py`)."""

from __future__ import annotations

import functools
import itertools
import subprocess
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.op_modules import op_modules, room_of
from tests.ops.samples import frozen, notation, projection
from tests.ops.samples.builders import builder, without_constants
from tests.ops.samples.notation import Row
from tests.oracle import Oracle
from tfmini.data.function_graph import FunctionGraph
from tfmini.graph.op_types import GRADIENTS, KERNELS, OPS
from tfmini.ops.session_tensors import sample_ops

ROWS = {room: list(notation.rows(room)) for room in notation.rooms()}
GROUPS: dict[tuple[str, str], list[Row]] = defaultdict(list)
for _room, _rows in ROWS.items():
    for _row in _rows:
        GROUPS[_room, _row.head].append(_row)


by_head = pytest.mark.parametrize(
    "rows", [pytest.param(rows, id=f"{room}-{head}") for (room, head), rows in GROUPS.items()]
)


@by_head
def test_values(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Dtypes and shapes as declared and inferred; these and the values are TensorFlow's."""
    for row in rows:
        tmp = _folder(row, tmp_path_factory)
        with tf.Graph().as_default() as graph:
            steps, feeds = notation.build(row, tf, builder, tmp)
            missing = row.through - {operation.type for operation in graph.get_operations()}
            assert not missing, f"{row.text}: the graph has no {missing}"
            _check(row, _run(steps, feeds, tmp), inferred=True)


STATIC = {"ParallelConcat": "wants shapes that are fully known"}


@by_head
def test_unknown_shapes(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same where no shape and no value is known before the step, in a graph that was exported and imported."""
    if rows[0].head in STATIC:
        pytest.skip(f"{rows[0].head} {STATIC[rows[0].head]}")
    for row in rows:
        tmp = _folder(row, tmp_path_factory)
        with tf.Graph().as_default() as graph:
            steps, feeds = notation.build(row, tf, builder, tmp)
        with tf.Graph().as_default() as blurred:
            tf.import_graph_def(without_constants(graph.as_graph_def()), name="")
            steps = [[blurred.as_graph_element(item.name) for item in step] for step in steps]
            feeds = {blurred.as_graph_element(item.name): value for item, value in feeds.items()}
            _check(row, _run(steps, feeds, tmp), inferred=False)


@by_head
def test_inputs_of_another_graph(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    """One at a time, as tensor and as variable: refused, or the op is built there if it has no other input."""
    for row in rows:
        with tf.Graph().as_default() as graph:
            notation.build(row, tf, builder, _folder(row, tmp_path_factory))
            for operation in graph.get_operations():
                for index, own in enumerate(operation.inputs):
                    for stranger in _strangers(own.dtype, own.raw_shape):
                        _check_stranger(operation, index, stranger)


@by_head
def test_inputs_that_a_function_captures(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    """A dataset's function may use what the graph around it has, in every op that changes no reference."""
    for row in rows:
        with tf.Graph().as_default() as graph:
            notation.build(row, tf, builder, _folder(row, tmp_path_factory))
        for operation in graph.get_operations():
            for kind in range(4 if operation.inputs else 0):
                inputs = [(_strangers(t.dtype, t.raw_shape) * 4)[kind] for t in operation.inputs]
                _check_captures(operation, inputs)


def _check_captures(operation: Any, inputs: list[Any]) -> None:
    with FunctionGraph(_ELSEWHERE).as_default() as inner:
        if any(arg.is_ref for arg in operation.handle.op_def.inputs):
            with pytest.raises(TypeError, match="has only the value of .* use_resource=True"):
                _call_again(operation, inputs)
        elif operation.type not in STATIC:
            _call_again(operation, inputs)
            made = inner.get_operations()[-1]
            assert made.type == operation.type and {t.graph for t in made.inputs} == {inner}


_ELSEWHERE = tf.Graph()


@functools.cache
def _strangers(dtype: tf.DType, shape: tuple[int | None, ...] | None) -> list[Any]:
    """What another graph can give for an input: a tensor and variables of both kinds, or a handle."""
    with _ELSEWHERE.as_default():
        value = tf.placeholder(dtype.base_dtype, shape)
        if dtype in (tf.resource, tf.variant):
            return [value]
        reference = tf.Variable(value, validate_shape=False, use_resource=False)
        if dtype != dtype.base_dtype:
            return [reference, reference.op.outputs[0]]
        return [value, reference, reference.op.outputs[0], tf.Variable(value, validate_shape=False, use_resource=True)]


def _check_stranger(operation: Any, index: int, stranger: Any) -> None:
    inputs = [*operation.inputs[:index], stranger, *operation.inputs[index + 1 :]]
    before = len(operation.graph.get_operations())
    if len(inputs) == 1:
        _call_again(operation, inputs)
    else:
        with pytest.raises(ValueError, match="must be from the same graph as"):
            _call_again(operation, inputs)
    assert len(operation.graph.get_operations()) == before


def _call_again(operation: Any, inputs: list[Any]) -> None:
    """Builds an op like ``operation`` from other inputs."""
    op_def, attrs, waiting = operation.handle.op_def, operation.attrs, iter(inputs)
    args = []
    for arg in op_def.inputs:
        count = len(attrs[arg.type_list_attr]) if arg.type_list_attr else attrs[arg.number_attr] if arg.is_list else 1
        found = list(itertools.islice(waiting, count))
        args.append(found if arg.is_list else found[0])
    given = {name: attrs[name] for name in attrs.keys() & op_def.attrs.keys() - op_def.inferred_attrs()}
    OPS[operation.type](*args, **given, name="again")


def _folder(row: Row, factory: pytest.TempPathFactory) -> str:
    """An empty folder for a row that names it."""
    return str(factory.mktemp("row")) if "tmp" in row.text else ""


def _run(steps: list[list[Any]], feeds: dict[Any, Any], tmp: str) -> list[list[Any]]:
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        results = [session.run(fetches, feeds) for fetches in steps]
    return [
        [_encoded(item, value, tmp) for item, value in zip(*pair) if value is not None] for pair in zip(steps, results)
    ]


def _encoded(tensor: Any, value: Any, tmp: str) -> list[Any]:
    array = np.asarray(value)
    assert tensor.dtype.base_dtype == tf.string or array.dtype == tensor.dtype.numpy, f"{array.dtype} for {tensor}"
    assert tensor.shape.is_compatible_with(array.shape), f"{array.shape} for {tensor}"
    return frozen.encode(value, tensor.shape, tmp)


def _check(row: Row, found: list[list[Any]], inferred: bool) -> None:
    if row.compared == "nothing":
        return
    theirs = frozen.read(row.room).get(row.text)
    assert theirs is not None, f"{row.text}: no answer yet; run tests/ops/samples/freeze.py {row.room}"
    assert [len(step) for step in found] == [len(step) for step in theirs], row.text
    for ours, expected in zip(sum(found, []), sum(theirs, [])):
        wrong = frozen.difference(ours, expected, row.compared, inferred)
        assert not wrong, f"{row.text}: {wrong}"


# The gradient of these isn't the slope of their values, or there is nothing to differentiate by.
_REFERENCES = "loops over references are of old graphs; their gradient is that of the op without Ref"
UNCHECKED = {
    **dict.fromkeys(
        ("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel"),
        "their gradients pass over the rounding; those ops have samples, and a program in tests/programs/era_ops.py",
    ),
    "KvResourceGather": "there is no array to differentiate by; tests/ops/growing has its gradient",
    "LoopCond": "its value is a truth value",
    **dict.fromkeys(("RefEnter", "RefExit", "RefNextIteration"), _REFERENCES),
    "PreventGradient": "its gradient is an error",
    **dict.fromkeys(
        ("FusedBatchNormGrad", "FusedBatchNormGradV2"),
        "in training it takes the batch's own mean for that which is given, as TensorFlow's; see test_gradients.py",
    ),
    "RandomGamma": "every run draws other numbers; RandomGammaGrad has samples",
    "SparseDenseCwiseAdd": "its gradient is an error, in TensorFlow too",
}
DECLARED = list(op_modules())
DIFFERENTIABLE = [op for op in DECLARED if GRADIENTS.get(op) is not None and (op, "CPU") in KERNELS]


def _has_other_gradient(row: Row) -> bool:
    """Whether a gradient is not the slope, in TensorFlow neither: boxes get that of the bilinear method."""
    return row.head == "CropAndResize" and "method='nearest'" in row.text


@functools.cache
def _rows_calling() -> dict[str, list[Row]]:
    """Op -> the rows that call it and have slopes, those of which it is the head first."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in (row for rows in ROWS.values() for row in rows if row.has_slope and not _has_other_gradient(row)):
        for op in row.names & OPS.keys():
            found[op].append(row)
    return {op: sorted(rows, key=lambda row: row.head != op) for op, rows in found.items()}


@pytest.mark.parametrize("op", [op for op in DIFFERENTIABLE if op not in UNCHECKED])
def test_gradients(op: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a random combination of the results is the slope in a random direction."""
    called = []
    gradient = GRADIENTS[op]
    monkeypatch.setitem(GRADIENTS, op, lambda *args: called.append(op) or gradient(*args))
    for row in _rows_calling().get(op, []):
        if called and row.head != op:
            break
        found = projection.slopes(row, _folder(row, tmp_path_factory))
        if found is not None:
            message = f"{row.text}: slope {found.analytic} by the gradient, {found.numeric} by differences"
            assert abs(found.analytic - found.numeric) <= found.tolerance, message
    assert called, f"no sample of {op} has a gradient that passes through it"


# What has no sample, and why.
WITHOUT_SAMPLE = {
    "Abort": "it ends the process",
    **dict.fromkeys(sample_ops, "it exists to be built only"),
}


def test_every_op_has_a_sample_in_its_room() -> None:
    """The file has the name of the folder that declares the op; families of one file share files of samples."""
    sampled = {room: set().union(*(row.names for row in rows)) for room, rows in ROWS.items()}
    sampled["ops"] = set().union(*sampled.values())
    wanted = {op: room_of(op) for op in DECLARED if op not in WITHOUT_SAMPLE}
    missing = [f"{op} in tests/ops/samples/{r}.py" for op, r in wanted.items() if op not in sampled.get(r, ())]
    assert missing == [], "these ops need a row there (contributing.md, How to add an op, step 6)"


def test_every_answer_is_of_a_sample() -> None:
    rows = {row.text for room in ROWS.values() for row in room if row.compared != "nothing"}
    assert [text for room in ROWS for text in frozen.read(room) if text not in rows] == []


@pytest.mark.oracle
def test_frozen_answers_are_those_of_tensorflow(oracle: Oracle) -> None:
    command = [oracle.python, str(notation.FOLDER / "freeze.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
