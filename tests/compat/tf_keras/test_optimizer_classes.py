"""`tf.keras.optimizers`: the losses, names and configurations of TensorFlow 1.15.5."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")

# The losses of 3 epochs of the model below, as TensorFlow 1.15.5 gave them.
LOSSES = {
    "sgd": [0.98974, 0.88251, 0.80229],
    "adam": [0.98470, 0.96546, 0.94873],
    "rmsprop": [0.98543, 0.94948, 0.92429],
    "nadam": [0.98472, 0.97187, 0.96137],
    "adagrad": [0.98470, 0.97302, 0.96494],  # by its name, the accumulators begin at 0
    "adadelta": [0.98444, 0.98443, 0.98441],
    "adamax": [0.98470, 0.96907, 0.95742],
    "ftrl": [1.10519, 1.68518, 1.68180],
}
ARGUMENTS: dict[str, tuple[str, dict[str, Any], list[float]]] = {
    "nesterov": ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}, [2.52442, 1.27122, 0.96367]),
    "amsgrad": ("Adam", {"amsgrad": True, "decay": 0.1, "clipnorm": 0.5}, [0.98470, 0.96671, 0.95477]),
    "centered": ("RMSprop", {"centered": True}, [0.98549, 0.94763, 0.91997]),
    "centered with momentum": ("RMSprop", {"centered": True, "momentum": 0.9}, [0.98549, 0.92433, 0.83870]),
}


@pytest.fixture(autouse=True)
def _in_a_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield
    tf.keras.backend.set_session(None)


def _trained(optimizer: Any) -> tuple[Any, list[float]]:
    """A model with a sparse and a dense gradient, and its losses."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Embedding(10, 3, input_length=2, embeddings_initializer="ones"),
            layers.Flatten(),
            layers.Dense(2, kernel_initializer=tf.keras.initializers.Constant(0.3)),
        ]
    )
    model.compile(optimizer, "mse")
    xs, ys = np.arange(8).reshape(4, 2), np.arange(8).reshape(4, 2) / 3.0
    return model, model.fit(xs, ys, epochs=3, verbose=0, batch_size=2, shuffle=False).history["loss"]


@pytest.mark.parametrize("name", LOSSES)
def test_an_optimizer_by_its_name_gives_the_losses_of_tensorflow(name: str) -> None:
    np.testing.assert_allclose(_trained(name)[1], LOSSES[name], rtol=2e-5)


@pytest.mark.parametrize("case", ARGUMENTS)
def test_an_optimizer_with_arguments_gives_the_losses_of_tensorflow(case: str) -> None:
    cls, arguments, losses = ARGUMENTS[case]
    np.testing.assert_allclose(_trained(getattr(tf.keras.optimizers, cls)(**arguments))[1], losses, rtol=2e-5)


def test_a_schedule_is_the_rate_of_each_step_and_part_of_the_configuration() -> None:
    rate = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.9)
    model, losses = _trained(tf.keras.optimizers.SGD(rate))
    np.testing.assert_allclose(losses, [1.41619, 0.88342, 0.72300], rtol=2e-5)
    again = tf.keras.optimizers.SGD.from_config(model.optimizer.get_config())
    assert again.learning_rate.get_config() == rate.get_config()


def test_weights_have_the_names_and_the_order_of_tensorflow() -> None:
    model, _ = _trained("adam")
    kinds = ["embedding/embeddings", "dense/kernel", "dense/bias"]
    slots = [f"training/Adam/{kind}/{slot}:0" for slot in "mv" for kind in kinds]
    assert [weight.name for weight in model.optimizer.weights] == ["training/Adam/iter:0", *slots]
    assert model.optimizer.get_weights()[0] == 6
    model.optimizer.set_weights([weight * 0 for weight in model.optimizer.get_weights()])
    assert not any(np.any(weight) for weight in model.optimizer.get_weights())


def test_hyperparameters_are_variables_that_callbacks_change() -> None:
    model, _ = _trained(tf.keras.optimizers.SGD(0.5))
    model.optimizer.lr = 0.25
    assert tf.keras.backend.get_value(model.optimizer.learning_rate) == 0.25
    assert model.optimizer.get_config()["learning_rate"] == 0.25


@pytest.mark.parametrize("first", [0.5, np.float32(0.5), lambda: 0.5])
def test_a_hyperparameter_changes_before_the_first_step(first: Any) -> None:
    optimizer = tf.keras.optimizers.SGD(first)
    optimizer.lr = 0.25
    assert tf.keras.backend.get_value(optimizer.lr) == 0.25
    optimizer.lr = 0.125
    assert tf.keras.backend.get_value(optimizer.lr) == 0.125


def test_an_optimizer_of_a_program_says_its_slots_and_updates() -> None:
    class Signs(tf.keras.optimizers.Optimizer):
        def __init__(self, rate: float, name: str = "Signs") -> None:
            super().__init__(name)
            self._set_hyper("learning_rate", rate)

        def _create_slots(self, var_list: Any) -> None:
            for var in var_list:
                self.add_slot(var, "count")

        def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
            change = self._decayed_lr(var.dtype.base_dtype) * tf.sign(grad)
            return tf.group(var.assign_sub(change), self.get_slot(var, "count").assign_add(tf.ones_like(grad)))

    variable = tf.Variable([1.0, -2.0], use_resource=True)
    optimizer = Signs(0.5)
    update = optimizer.minimize(lambda: tf.reduce_sum(variable * variable), [variable])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(update)
        assert session.run(variable).tolist() == [0.5, -1.5]
        assert session.run(optimizer.get_slot(variable, "count")).tolist() == [1.0, 1.0]
        assert session.run(optimizer.iterations) == 1
    assert optimizer.get_slot_names() == ["count"]


def test_a_variable_that_is_no_resource_is_trained_too() -> None:
    variable = tf.Variable([1.0, -2.0], use_resource=False)
    update = tf.keras.optimizers.Adam(0.5).apply_gradients([(tf.constant([1.0, 1.0]), variable)])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(update)
        np.testing.assert_allclose(session.run(variable), [0.5, -2.5], rtol=1e-5)


def test_mistakes_are_named() -> None:
    optimizers = tf.keras.optimizers
    with pytest.raises(TypeError, match="Unexpected keyword argument.*: speed"):
        optimizers.SGD(speed=1)
    with pytest.raises(ValueError, match="Expected decay >= 0, received: -1"):
        optimizers.Adam(decay=-1)
    with pytest.raises(ValueError, match="learning_rate_power 1.000000 needs to be negative or zero"):
        optimizers.Ftrl(learning_rate_power=1.0)
    with pytest.raises(ValueError, match="l1_regularization_strength -1.000000 needs to be positive or zero"):
        optimizers.Ftrl(l1_regularization_strength=-1.0)
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        optimizers.SGD().apply_gradients([(None, tf.Variable(1.0))])
    optimizer = optimizers.SGD()
    optimizer.apply_gradients([(tf.constant(1.0), tf.Variable(1.0, use_resource=True))])
    with pytest.raises(RuntimeError, match="Cannot set `iterations`"):
        optimizer.iterations = tf.Variable(0)
    with pytest.raises(ValueError, match="was expecting 1 weights"):
        optimizer.set_weights([1, 2])


@pytest.mark.parametrize("name", ["Adam", "Adamax", "Nadam", "Adadelta", "Adagrad", "RMSprop"])
def test_no_epsilon_is_that_of_the_backend(name: str) -> None:
    backend, cls = tf.keras.backend, getattr(tf.keras.optimizers, name)
    before = backend.epsilon()
    backend.set_epsilon(1e-3)
    try:
        assert [cls(epsilon=epsilon).epsilon for epsilon in (None, 0)] == [1e-3, 1e-3]
        assert cls(epsilon=None).get_config()["epsilon"] == 1e-3
        assert cls().epsilon == 1e-7
    finally:
        backend.set_epsilon(before)


@pytest.mark.parametrize("name", ["Adadelta", "Adagrad", "RMSprop"])
def test_weights_of_keras_without_the_step(name: str) -> None:
    optimizer = _trained(name.lower())[0].optimizer
    slots = optimizer.get_weights()[1:]
    optimizer.set_weights([slot + 3 for slot in slots])
    found = optimizer.get_weights()
    assert found[0] == 0
    assert all(np.array_equal(new, old + 3) for new, old in zip(found[1:], slots))


@pytest.mark.parametrize("name", ["adam", "adamax", "nadam"])
def test_weights_of_others_have_the_step(name: str) -> None:
    optimizer = _trained(name)[0].optimizer
    with pytest.raises(ValueError, match="was expecting"):
        optimizer.set_weights(optimizer.get_weights()[1:])


def test_the_momentum_of_nadam_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    model, _ = _trained("nadam")
    model.save_weights(str(tmp_path / "weights"))
    assert ("optimizer/momentum_cache/.ATTRIBUTES/VARIABLE_VALUE", []) in tf.train.list_variables(
        str(tmp_path / "weights")
    )
    cache = model.optimizer.weights[1]
    before = tf.keras.backend.get_value(cache)
    tf.keras.backend.set_value(cache, 0.25)
    model.load_weights(str(tmp_path / "weights"))
    assert tf.keras.backend.get_value(cache) == before != 0.25


def test_nadam_has_a_decay_of_the_momentum_alone() -> None:
    made = tf.keras.optimizers.Nadam
    for arguments, decay in (({"decay": 0.1}, 0.004), ({"schedule_decay": 0.1, "decay": 0.2}, 0.1)):
        np.testing.assert_allclose(made(**arguments).get_config()["decay"], decay)


def test_the_state_of_a_second_model_is_named_behind_the_steps_of_the_first() -> None:
    names = [_trained("sgd")[0].optimizer.weights[0].name for _ in range(3)]
    assert names == ["training/SGD/iter:0", "training_2/SGD/iter:0", "training_4/SGD/iter:0"]


def test_an_optimizer_with_a_get_updates_of_its_own_trains() -> None:
    keras = tf.keras

    class Halves(keras.optimizers.Optimizer):
        def __init__(self, rate: float = 0.25) -> None:
            super().__init__("Halves")
            self.rate = rate

        def get_updates(self, loss: Any, params: Any) -> Any:
            pairs = zip(params, self.get_gradients(loss, params))
            return [keras.backend.update_sub(param, self.rate * grad) for param, grad in pairs]

    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    model.compile(Halves(), "mse")
    losses = [model.train_on_batch(np.ones((2, 2)), np.ones((2, 1))) for _ in range(3)]
    assert losses[2] < losses[0]
    with pytest.raises(ValueError, match=r"it is a class: give Halves\(\)"):
        keras.optimizers.get(Halves)


def test_an_optimizer_of_another_library_is_refused_with_the_remedy() -> None:
    class Optimizer:
        def get_updates(self, loss: object, params: object) -> list[Any]:
            return []

    class Mine(Optimizer):
        pass

    with pytest.raises(ValueError, match=r"Could not interpret.*Mine derives from .*\.Optimizer: .*tf\.keras\.optim"):
        tf.keras.optimizers.get(Mine())
    with pytest.raises(ValueError, match=r"Could not interpret optimizer identifier: 3$"):
        tf.keras.optimizers.get(3)


@pytest.mark.parametrize("use_resource", [False, True])
def test_rows_of_any_variable_are_updated(use_resource: bool) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.Variable([[1.0], [2.0]], use_resource=use_resource)
        step = tf.keras.optimizers.SGD(3.0).apply_gradients(
            [(tf.IndexedSlices(tf.constant([[0.1]]), tf.constant([0]), tf.constant([2, 1])), table)]
        )
        session.run(tf.global_variables_initializer())
        session.run(step)
        np.testing.assert_allclose(session.run(table), [[0.7], [2.0]], rtol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "RMSprop"])
def test_no_momentum_of_a_configuration_keeps_no_slots(name: str) -> None:
    """A configuration's numbers are NumPy's once the optimizer has trained."""
    made = getattr(tf.keras.optimizers, name).from_config({"momentum": np.float32(0.0)})
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(1,))])
    model.compile(made, "mse")
    model.fit(np.ones([1, 1]), np.ones([1, 1]), verbose=0)
    assert not any("momentum" in weight.name for weight in made.weights)
    with pytest.raises(ValueError, match="between"):
        getattr(tf.keras.optimizers, name)(momentum=np.float32(2.0))


def test_an_optimizer_without_a_name_has_that_of_its_class() -> None:
    class MyOpt(tf.keras.optimizers.Optimizer):  # type: ignore[misc]
        """An optimizer of a program."""

    with tf.Graph().as_default():
        assert [MyOpt(name).get_config()["name"] for name in (None, "own", "")] == ["my_opt", "own", "my_opt_1"]


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_on_references_is_that_on_resources(nesterov: bool) -> None:
    def values(use_resource: bool) -> Any:
        var = tf.Variable([1.0, 2.0, 3.0], use_resource=use_resource)
        sgd = tf.keras.optimizers.SGD(0.1, momentum=0.9, nesterov=nesterov)
        dense = sgd.apply_gradients([(tf.constant([0.1, 0.2, 0.3]), var)])
        sparse = sgd.apply_gradients([(tf.IndexedSlices(tf.constant([0.5]), tf.constant([1]), tf.constant([3])), var)])
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for step in (dense, sparse, dense, sparse):
                session.run(step)
            return session.run([var, sgd.get_slot(var, "momentum")])

    np.testing.assert_allclose(values(False), values(True), rtol=1e-6)
