"""Optimizers: trajectories, graphs and names against TensorFlow's, errors, placement on parameter servers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tfmini.graph.building  # noqa: F401 - makes op handles callable
from tests.ops import evaluate as evaluation
from tests.ops.evaluate import evaluate
from tests.train import optimizer_cases as cases
from tfmini import dtypes
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.keys import GraphKeys
from tfmini.ops import (
    array_gather,
    array_identity,
    math_sums,  # noqa: F401 - sums of gradients
    reduce_functions,
)
from tfmini.ops.constant import constant
from tfmini.ops.scoping import device
from tfmini.ops.variables import Variable
from tfmini.placement.device_setter import replica_device_setter
from tfmini.runtime.session import Session
from tfmini.train import learning_rate_decay, training_util
from tfmini.train.adadelta import AdadeltaOptimizer
from tfmini.train.adagrad import AdagradOptimizer
from tfmini.train.adagrad_da import AdagradDAOptimizer
from tfmini.train.adam import AdamOptimizer
from tfmini.train.ftrl import FtrlOptimizer
from tfmini.train.gradient_descent import GradientDescentOptimizer
from tfmini.train.momentum import MomentumOptimizer
from tfmini.train.moving_averages import ExponentialMovingAverage, assign_moving_average
from tfmini.train.optimizer import Optimizer
from tfmini.train.proximal import ProximalAdagradOptimizer, ProximalGradientDescentOptimizer
from tfmini.train.rmsprop import RMSPropOptimizer

_train = SimpleNamespace(
    GradientDescentOptimizer=GradientDescentOptimizer,
    MomentumOptimizer=MomentumOptimizer,
    AdagradOptimizer=AdagradOptimizer,
    AdamOptimizer=AdamOptimizer,
    RMSPropOptimizer=RMSPropOptimizer,
    AdadeltaOptimizer=AdadeltaOptimizer,
    FtrlOptimizer=FtrlOptimizer,
    ProximalGradientDescentOptimizer=ProximalGradientDescentOptimizer,
    ProximalAdagradOptimizer=ProximalAdagradOptimizer,
    AdagradDAOptimizer=AdagradDAOptimizer,
    **{name: getattr(learning_rate_decay, name) for name in vars(learning_rate_decay) if not name.startswith("_")},
)
tf = SimpleNamespace(
    Variable=Variable, constant=constant, IndexedSlices=IndexedSlices, int64=dtypes.int64, train=_train
)


@pytest.fixture(autouse=True)
def graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    def lookup_or_create(self: Any, *key_and_create: Any) -> Any:
        *key, create = key_and_create
        if tuple(key) not in self.table:
            self.table[tuple(key)] = create()
        return self.table[tuple(key)]

    monkeypatch.setattr(evaluation.Resources, "lookup_or_create", lookup_or_create)
    with Graph().as_default() as made:
        yield made


def initialize() -> None:
    evaluate([v.initializer for v in get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES)])


def read(variable: Any) -> Any:
    return evaluate(variable.read_value())


def half_squared_norm(x: Any) -> Any:
    return reduce_functions.reduce_sum(x * x) * 0.5


# ---- against TensorFlow ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    python = os.environ.get("TFMINI_ORACLE")
    if not python:
        pytest.skip("TFMINI_ORACLE names no Python with TensorFlow")
    target = tmp_path_factory.mktemp("oracle") / "runs.json"
    script = Path(__file__).with_name("oracle_optimizers.py")
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([python, str(script), str(target)], check=True, env=env, timeout=900, capture_output=True)
    return json.loads(target.read_text())


@pytest.mark.oracle
@pytest.mark.parametrize("combination", cases.combinations(), ids=repr)
def test_runs_like_tensorflow(expected: Any, combination: tuple[str, bool, bool, bool]) -> None:
    wanted = expected["runs"][repr(combination)]
    opt, train, x = cases.build(tf, *combination)
    initialize()
    for values in wanted["values"]:
        evaluate(train)
        np.testing.assert_allclose(read(x), values, rtol=2e-6, atol=1e-6)
    assert train.name == wanted["train"]
    assert opt.get_slot_names() == wanted["slots"]
    assert [v.name for v in opt.variables()] == list(wanted["state"])
    for v in opt.variables():
        np.testing.assert_allclose(read(v), wanted["state"][v.name], rtol=2e-6, atol=1e-6)


@pytest.mark.oracle
# Ftrl of TensorFlow 2.x makes its slots and its l2 otherwise than that of 1.15.
@pytest.mark.parametrize("combination", [c for c in cases.combinations() if not c[1] and "ftrl" not in c[0]], ids=repr)
def test_graph_of_reference_variables_is_tensorflows(expected: Any, combination: tuple[str, bool, bool, bool]) -> None:
    cases.build(tf, *combination)
    wanted = expected["runs"][repr(combination)]["graph"]
    for line in wanted:
        line[1] = "Add" if line[1] == "AddV2" else line[1]  # TensorFlow 1.15 has Add where 2.x has AddV2
    assert describe(get_default_graph()) == wanted


def describe(graph: Graph) -> list[list[Any]]:
    found: list[list[Any]] = []
    for op in graph.get_operations():
        groups = sorted(g.decode() for g in op.colocation_groups() if g.decode() != f"loc:@{op.name}")
        found.append([op.name, op.type, [t.name for t in op.inputs], sorted(c.name for c in op.control_inputs), groups])
    return found


@pytest.mark.oracle
@pytest.mark.parametrize("source", cases.SCHEDULES)
def test_schedules_equal_tensorflows(expected: Any, source: str) -> None:
    step = array_identity.placeholder(dtypes.int64, [])
    rate = eval(source, {"tf": tf, "step": step})
    with Session() as session:
        values = [session.run(rate, {step: n}) for n in cases.SCHEDULE_STEPS]
    assert all(v.dtype == np.float32 for v in values)
    np.testing.assert_allclose(values, expected["schedules"][source][1], rtol=2e-6, atol=1e-7)
    assert rate.name == expected["schedules"][source][0]


# ---- the reference trajectories ---------------------------------------------------------------


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize(
    "optimizer,first",
    [
        (lambda: GradientDescentOptimizer(0.1), [0.9, 0.81, 0.729]),
        (lambda: MomentumOptimizer(0.1, 0.9), [0.9, 0.72, 0.486]),
        (lambda: MomentumOptimizer(0.1, 0.9, use_nesterov=True), [0.81, 0.5751, 0.327321]),
        (lambda: AdamOptimizer(0.1), [0.9, 0.8004127, 0.7015874]),
        (lambda: AdagradOptimizer(0.1), [0.9046537, 0.8393387, 0.7875128]),
        (lambda: RMSPropOptimizer(0.1), [0.9, 0.8091326, 0.7260460]),
        (lambda: RMSPropOptimizer(0.1, momentum=0.5), [0.9, 0.7591326, 0.6104224]),
        (lambda: RMSPropOptimizer(0.1, centered=True), [0.8994962, 0.8071382, 0.7215374]),
        (lambda: AdadeltaOptimizer(1.0), [0.9995528, 0.9990999, 0.9986435]),
    ],
)
def test_reference_trajectories(optimizer: Any, first: list[float], resource: bool) -> None:
    x = Variable([1.0, -2.0], use_resource=resource)
    train = optimizer().minimize(half_squared_norm(x))
    initialize()
    for wanted in first:
        evaluate(train)
        assert read(x)[0] == pytest.approx(wanted, rel=1e-3 if wanted == 0.9 else 2e-6)


@pytest.mark.parametrize("resource", [False, True])
def test_minimize_through_a_lookup_sums_repeated_rows(resource: bool) -> None:
    table = Variable([[1.0], [2.0], [3.0]], use_resource=resource)
    picked = array_gather.gather(table, [2, 2])
    train = MomentumOptimizer(0.5, 0.0).minimize(reduce_functions.reduce_sum(picked))
    initialize()
    evaluate(train)
    np.testing.assert_array_equal(read(table), [[1], [2], [2]])


@pytest.mark.parametrize("resource", [False, True])
def test_global_step_counts_updates(resource: bool) -> None:
    x = Variable([1.0], use_resource=resource)
    step = Variable(np.int64(5), trainable=False, use_resource=resource)
    train = GradientDescentOptimizer(0.1).minimize(half_squared_norm(x), global_step=step)
    assert train.name == "GradientDescent"
    assert get_default_graph().get_collection(GraphKeys.TRAIN_OP) == [train]
    initialize()
    evaluate(train)
    assert read(step) == 6


def test_the_constraint_holds_after_the_update() -> None:
    x = Variable([1.0, 1.0], constraint=lambda v: v * 0.0)
    train = GradientDescentOptimizer(0.1).apply_gradients([(constant([1.0, 1.0]), x)])
    initialize()
    evaluate(train)
    np.testing.assert_array_equal(read(x), [0, 0])


@pytest.mark.parametrize("gate", [Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH])
def test_gates_do_not_change_gradients(gate: int) -> None:
    x, y = Variable([1.0, 2.0]), Variable([3.0, 4.0])
    loss = reduce_functions.reduce_sum(x * y)
    pairs = GradientDescentOptimizer(0.1).compute_gradients(loss, [x, y], gate_gradients=gate)
    assert [v for _, v in pairs] == [x, y]
    initialize()
    np.testing.assert_array_equal(evaluate(pairs[0][0]), [3, 4])
    np.testing.assert_array_equal(evaluate(pairs[1][0]), [1, 2])


def test_variables_without_gradient_are_skipped() -> None:
    x, y = Variable([1.0]), Variable([1.0])
    opt = MomentumOptimizer(0.1, 0.9)
    pairs = opt.compute_gradients(half_squared_norm(x), var_list=[x, y])
    assert pairs[1] == (None, y)
    opt.apply_gradients(pairs)
    assert opt.get_slot(x, "momentum") is not None
    assert opt.get_slot(y, "momentum") is None
    assert opt.get_slot(x, "other") is None


def test_float64_variables_take_float32_rates() -> None:
    x = Variable(np.array([1.0]))
    train = AdagradOptimizer(0.1).minimize(half_squared_norm(x))
    initialize()
    evaluate(train)
    assert read(x).dtype == np.float64


def test_own_optimizers_override_the_hooks() -> None:
    class Halving(Optimizer):
        def _apply_dense(self, grad: Any, var: Any) -> Any:
            return var.assign(var * 0.5).op

    x = Variable([4.0], name="x")
    train = Halving(False, "Halving").minimize(half_squared_norm(x))
    assert train.name == "Halving"
    initialize()
    evaluate(train)
    assert read(x) == [2.0]


# ---- parameter servers ----------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_updates_live_with_their_variable(sparse: bool) -> None:
    with device(replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:1")):
        a, b = Variable([[1.0], [2.0]], name="a"), Variable([[1.0], [2.0]], name="b")
        grad: Any = constant([[1.0], [1.0]])
        if sparse:
            grad = IndexedSlices(grad, constant([0, 0]))
        train = AdamOptimizer(0.1).apply_gradients([(grad, a), (grad, b)])
    ops = {op.name: op for op in get_default_graph().get_operations()}
    for task, var in enumerate((a, b)):
        assert var.device == f"/job:ps/task:{task}"
        own = [op for name, op in ops.items() if name.startswith(f"Adam/update_{var.op.name}/")]
        assert own
        assert all(
            op.device == var.device and op.colocation_groups()[0] == f"loc:@{var.op.name}".encode() for op in own
        )
        assert ops[f"{var.op.name}/Adam"].device == ops[f"{var.op.name}/Adam_1"].device == var.device
    assert ops["beta1_power"].device == a.device
    assert ops["Adam/learning_rate"].device == "/job:worker/task:1"
    assert train.name == "Adam"


# ---- errors ---------------------------------------------------------------------------------


def sgd() -> GradientDescentOptimizer:
    return GradientDescentOptimizer(0.1)


def test_no_variables() -> None:
    with pytest.raises(ValueError, match=r"^No variables to optimize\.$"):
        sgd().minimize(constant(1.0))


def test_no_gradients() -> None:
    Variable([1.0], name="v")
    with pytest.raises(ValueError) as caught:
        sgd().minimize(constant(1.0))
    assert str(caught.value) == (
        "No gradients provided for any variable, check your graph for ops that do not support gradients, between"
        " variables [\"<tf.Variable 'v:0' shape=(1,) dtype=float32_ref>\"] and loss"
        ' Tensor("Const:0", shape=(), dtype=float32).'
    )


def test_bad_gate() -> None:
    x = Variable([1.0])
    with pytest.raises(ValueError) as caught:
        sgd().compute_gradients(half_squared_norm(x), gate_gradients=5)
    assert str(caught.value) == (
        "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH.  Not 5"
    )


def test_bad_dtype() -> None:
    Variable([1.0])
    with pytest.raises(ValueError, match=r"Invalid type tf\.int32 for Const:0, expected: \[tf\.float16, "):
        sgd().minimize(constant(1))


def test_empty_and_missing_gradients() -> None:
    v = Variable([1.0], name="v")
    with pytest.raises(ValueError, match=r"^No variables provided\.$"):
        sgd().apply_gradients([])
    with pytest.raises(ValueError) as caught:
        sgd().apply_gradients([(None, v)])
    assert str(caught.value) == (
        "No gradients provided for any variable: [\"<tf.Variable 'v:0' shape=(1,) dtype=float32_ref>\"]."
    )


def test_what_is_no_gradient_or_variable() -> None:
    v = Variable([1.0])
    with pytest.raises(TypeError, match="Gradient must be convertible to a Tensor or IndexedSlices, or None: <object"):
        sgd().apply_gradients([(object(), v)])
    with pytest.raises(NotImplementedError, match="Trying to update a Tensor"):
        sgd().apply_gradients([(constant(1.0), constant(2.0))])
    with pytest.raises(NotImplementedError, match="Trying to optimize unsupported type"):
        sgd().apply_gradients([(constant(1.0), 3)])


def test_sparse_gradient_of_a_constrained_variable() -> None:
    v = Variable([[1.0]], constraint=lambda x: x)
    slices = IndexedSlices(constant([[1.0]]), constant([0]))
    with pytest.raises(RuntimeError, match="Cannot use a constraint function on a sparse variable."):
        sgd().apply_gradients([(slices, v)])


def test_constructor_errors() -> None:
    with pytest.raises(ValueError, match="Must specify the optimizer name"):
        Optimizer(False, "")
    with pytest.raises(ValueError, match="initial_accumulator_value must be positive: 0.0"):
        AdagradOptimizer(0.1, 0.0)


# ---- global step ----------------------------------------------------------------------------


def test_the_global_step_is_made_once() -> None:
    assert training_util.get_global_step() is None
    step = training_util.get_or_create_global_step()
    assert training_util.get_or_create_global_step() is training_util.get_global_step() is step
    assert step.name == "global_step:0" and step.dtype.base_dtype == dtypes.int64 and not step.trainable
    assert get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES) == []
    with pytest.raises(ValueError, match=r'^"global_step" already exists\.$'):
        training_util.create_global_step()


def test_a_tensor_named_global_step_is_found() -> None:
    tensor = constant(3, name="global_step")
    assert training_util.get_global_step() is tensor
    session = SimpleNamespace(run=evaluate)
    assert training_util.global_step(session, tensor) == 3


@pytest.mark.parametrize(
    "make,message",
    [
        (lambda: 3, 'Existing "global_step" must be a Variable or Tensor: 3.'),
        (lambda: constant(1.0), "Existing \"global_step\" does not have integer type: <dtype: 'float32'>"),
        (lambda: constant([1]), 'Existing "global_step" is not scalar: (1,)'),
    ],
)
def test_what_is_no_global_step(make: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        training_util.assert_global_step(make())
    assert str(caught.value) == message


# ---- schedules and averages -----------------------------------------------------------------


def test_schedule_errors() -> None:
    with pytest.raises(ValueError, match="global_step is required for exponential_decay."):
        learning_rate_decay.exponential_decay(0.1, None, 10, 0.5)
    with pytest.raises(ValueError, match="The length of boundaries should be 1 less than the length of values"):
        learning_rate_decay.piecewise_constant(constant(1), [1, 2], [0.1, 0.2])
    with pytest.raises(ValueError, match="must have the same dtype as x"):
        learning_rate_decay.piecewise_constant(constant(1), [1.0], [0.1, 0.2])


def test_moving_average_of_a_tensor() -> None:
    value = array_identity.placeholder(dtypes.float32, [], name="value")
    average = ExponentialMovingAverage(0.9)
    assert average.average_name(value) == "value/ExponentialMovingAverage"
    update = average.apply([value])
    assert update.name == "ExponentialMovingAverage"
    assert average.average_name(value) == average.average(value).op.name
    initialize()
    for fed, wanted in ((10.0, 1.0), (20.0, 2.9)):
        evaluate([update], {value: fed})
        assert read(average.average(value)) == pytest.approx(wanted)


def test_the_decay_starts_small_when_updates_are_counted() -> None:
    value = constant(10.0)
    average = ExponentialMovingAverage(0.9, num_updates=0)
    update = average.apply([value])
    initialize()
    evaluate(update)
    assert read(average.average(value)) == pytest.approx(9.0)


def test_an_average_without_its_zeros_is_the_average_of_the_values() -> None:
    value = array_identity.placeholder(dtypes.float32, [])
    shadow = Variable(0.0, name="shadow")
    update = assign_moving_average(shadow, value, 0.9)
    initialize()
    evaluate([update], {value: 10.0})
    assert read(shadow) == pytest.approx(10.0)
    evaluate([update], {value: 20.0})
    assert read(shadow) == pytest.approx((10.0 * 0.09 + 20.0 * 0.1) / 0.19)


def test_averages_are_of_floats() -> None:
    with pytest.raises(TypeError, match="The variables must be half, float, or double: Const:0"):
        ExponentialMovingAverage(0.9).apply([constant(1)])


def test_noisy_decay_is_the_plain_one_plus_its_noise() -> None:
    get_default_graph().seed = 3
    step = constant(4)
    plain = learning_rate_decay.linear_cosine_decay(0.1, step, 10)
    silent = learning_rate_decay.noisy_linear_cosine_decay(0.1, step, 10, initial_variance=0.0)
    assert evaluate(silent) == pytest.approx(evaluate(plain))
    noisy = learning_rate_decay.noisy_linear_cosine_decay(0.1, step, 10, initial_variance=4.0, variance_decay=1.0)
    values = np.array([evaluate(noisy) for _ in range(300)])
    wave = 0.5 * (1 + np.cos(np.pi * 0.4))
    np.testing.assert_allclose(values.std(), 0.1 * wave * 2.0 / np.sqrt(5.0), rtol=0.2)


def test_ftrl_refuses_wrong_signs() -> None:
    for arguments in ({"learning_rate_power": 0.1}, {"initial_accumulator_value": -1.0}):
        with pytest.raises(ValueError, match=f"{next(iter(arguments))} .* needs to be"):
            FtrlOptimizer(0.1, **arguments)
