"""``horovod.tensorflow.elastic``: state that workers take over from rank 0 and can roll back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.compat.horovod.functions import broadcast_object_fn
from tfmini.compat.horovod.operations import broadcast_variables
from tfmini.graph.scopes import get_default_session
from tfmini.ops.variables.functions import global_variables
from tfmini.runtime.client.session import BaseSession

_ABSENT = {
    "TensorFlowKerasState": "Keras is out of tfmini's scope; use hvd.elastic.TensorFlowState",
    "run": "a restarted worker joins again automatically; for fewer or more workers use"
    " tf.train.AllReduceOptimizer(least_workers=…)",
}


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise AttributeError(f"tfmini's Horovod has no hvd.elastic.{name}: {_ABSENT[name]}.")
    raise AttributeError(f"module 'horovod.tensorflow.elastic' has no attribute {name!r} (tfmini.compat.horovod)")


class TensorFlowState:
    """The values of variables and of Python objects, as of the last `commit` or `sync`.

    Args:
      variables: default: all global variables.
      session: default: the default session.
      kwargs: objects that become attributes; see `broadcast_object` for their types.
    """

    def __init__(
        self, variables: Sequence[Any] | None = None, session: BaseSession | None = None, **kwargs: object
    ) -> None:
        self.variables = list(variables or global_variables())
        self.session = session or get_default_session()
        if self.session is None:
            raise ValueError("hvd.elastic.TensorFlowState needs a session: give session=…, or use `with tf.Session()`.")
        self._broadcast = broadcast_variables(self.variables, 0)
        self._send = broadcast_object_fn(session=self.session, name="state")
        self._objects = dict(kwargs)
        self._show()
        self._values = self.session.run(self.variables)

    def _show(self) -> None:
        for name, value in self._objects.items():
            setattr(self, name, value)

    def save(self) -> None:
        """Keeps the present values."""
        self._values = self.session.run(self.variables)
        self._objects = {name: getattr(self, name) for name in self._objects}

    def commit(self) -> None:
        """`save`: there are no changes of hosts to look for."""
        self.save()

    def restore(self) -> None:
        """Goes back to the values of the last `save`."""
        for variable, value in zip(self.variables, self._values):
            variable.load(value, self.session)
        self._show()

    def sync(self) -> None:
        """Takes over the present values of rank 0's variables and its saved objects, and keeps them."""
        self.session.run(self._broadcast)
        self._values = self.session.run(self.variables)
        if self._objects:
            self._objects = self._send(self._objects)
            self._show()
