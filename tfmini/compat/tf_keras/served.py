"""Models of ``tf.keras`` as objects of SavedModels: a call with and without training, variables, losses of weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tfmini.ops.flow.function import PolymorphicFunction
from tfmini.ops.variables.base import Variable
from tfmini.train.checkpointing.object_graph import Trackable, children_of

_TRACES = ("_updates", "_losses", "_per_input_updates", "_per_input_losses", "_inbound_nodes", "_outbound_nodes")


class _List(list[Any], Trackable):
    """A list that models of SavedModels have also if it is empty, or has functions in it."""

    def _trackable_children(self) -> list[tuple[str, Any]]:
        return [(str(number), item) for number, item in enumerate(self) if isinstance(item, Variable)]


class ServedModel(Trackable):
    """What is saved of a model.

    Attributes:
      variables, trainable_variables: its weights.
      regularization_losses: functions that give the losses of its weights.
      __call__: a `tf.function` of its inputs and ``training``.
    """

    def __init__(self, model: Any, signature: PolymorphicFunction) -> None:
        self._model = model
        self.variables, self.trainable_variables = _List(model.weights), _List(model.trainable_weights)
        self.regularization_losses = _List(_losses_of_weights(model))
        self._default_save_signature = signature
        assert signature.input_signature is not None
        specs = signature.input_signature
        call = PolymorphicFunction(self._called, autograph=False)
        for training in (False, True):
            call.get_concrete_function(specs[0] if len(specs) == 1 else [*specs], training)
        vars(self)["__call__"] = call

    def _called(self, inputs: Any, training: bool = False) -> Any:
        return self._model(inputs, training=training)

    def _trackable_children(self) -> list[tuple[str, Any]]:
        names = ("variables", "trainable_variables", "regularization_losses")
        layers = [(name, child) for name, child in children_of(self._model) if name != "optimizer"]
        return [*layers, *((name, getattr(self, name)) for name in names)]


def _losses_of_weights(model: Any) -> list[PolymorphicFunction]:
    """A function for each weight that has a regularizer."""
    found = []
    for layer in _layers_of(model):
        for name, regularizer in vars(layer).items():
            what, _, kind = name.rpartition("_")
            weight = vars(layer).get(what, vars(layer).get(f"{what}_kernel"))
            if kind == "regularizer" and regularizer is not None and isinstance(weight, Variable):
                loss = functools.partial(_loss, regularizer, weight)
                found.append(PolymorphicFunction(loss, (), autograph=False))
    return found


def _loss(regularizer: Callable[[Any], Any], weight: Variable) -> Any:
    return regularizer(weight)


def _layers_of(layer: Any) -> Iterator[Any]:
    yield layer
    for part in [*getattr(layer, "layers", ())]:
        yield from _layers_of(part)


@contextmanager
def _as_before(model: Any) -> Iterator[None]:
    """Afterwards the layers know nothing of calls that were made meanwhile."""
    kept = [(layer, name, vars(layer)[name]) for layer in _layers_of(model) for name in _TRACES if name in vars(layer)]
    for layer, name, value in kept:
        vars(layer)[name] = {k: list(v) for k, v in value.items()} if isinstance(value, dict) else list(value)
    try:
        yield
    finally:
        for layer, name, value in kept:
            vars(layer)[name] = value


def served(trace: Callable[[Any], PolymorphicFunction]) -> Callable[[Any], AbstractContextManager[ServedModel]]:
    """A method of models that `tf.saved_model.save` asks for what to save; ``trace`` gives the default signature."""

    @contextmanager
    def object_to_save(model: Any) -> Iterator[ServedModel]:
        with _as_before(model):
            yield ServedModel(model, trace(model))

    return object_to_save
