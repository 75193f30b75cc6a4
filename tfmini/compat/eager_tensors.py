"""Tensors with values, for the functions of ``tf.py_function``.

Such a function runs during a step and calls op functions on values. Each call of it has an `EagerGraph`, in which its
ops are built as usual. The graph computes an op when its value is asked for, at the latest when the function returns,
and keeps the values: an op runs once, and ops with side effects run in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scopes import ControlScope
from tfmini.ops.array.identity import placeholder
from tfmini.protos import ConfigProto
from tfmini.runtime.client.master_clients import MasterClient
from tfmini.runtime.client.session import Session
from tfmini.shapes import TensorShape


class EagerTensor(Tensor):
    """A tensor of an `EagerGraph`: it has a value."""

    __slots__ = ()

    def numpy(self) -> Any:
        """The value: an array of its own, or a scalar for rank 0.

        Raises:
          errors.OpError: an op that it depends on has failed.
        """
        value = self._value()
        return value.copy() if isinstance(value, np.ndarray) else value

    def _value(self) -> Any:
        graph = self.op.graph
        assert isinstance(graph, EagerGraph)
        return graph.values_of([self])[0]

    @property
    def shape(self) -> TensorShape:
        """The shape of the value, always known."""
        if self.raw_shape is None or None in self.raw_shape:
            self.raw_shape = np.shape(self._value())
        return TensorShape(self.raw_shape)

    def get_shape(self) -> TensorShape:
        """`shape`."""
        return self.shape

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """`numpy`."""
        return self.numpy()

    def __bool__(self) -> bool:
        return bool(self._value())

    __nonzero__ = __bool__

    def __int__(self) -> int:
        return int(self._value())

    def __float__(self) -> float:
        return float(self._value())

    def __complex__(self) -> complex:
        return complex(self._value())

    def __index__(self) -> int:
        return self._value().__index__()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self._value())

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __array__(self, *options: Any, **named: Any) -> Any:
        return np.array(self._value(), *options, **{**named, "copy": True})

    def __format__(self, spec: str) -> str:
        return format(self._value(), spec) if spec else str(self)

    def __str__(self) -> str:
        return f"tf.Tensor({self._value()}, shape={self.shape}, dtype={self.dtype.name})"

    def __repr__(self) -> str:
        return f"<tf.Tensor: shape={self.shape}, dtype={self.dtype.name}, numpy={self._value()!r}>"


class EagerGraph(Graph):
    """See the module. One thread uses it at a time."""

    tensor_class = EagerTensor
    prefers_resources = True  # a read of such a variable is an effect, in order with assignments

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[Tensor, Any] = {}
        self._effects: list[Operation] = []  # that have not run yet
        self._session: Session | None = None

    def argument(self, value: Any, dtype: dtypes.DType) -> Tensor:
        """A tensor with a given value."""
        made = placeholder(dtype, np.shape(value), name="argument")
        self._values[made] = value
        return made

    def add_op(self, *args: Any, **options: Any) -> Operation:
        """As in `Graph`; an op with side effects runs after those before it, outside of conds and loops."""
        made = super().add_op(*args, **options)
        if made.handle.op_def.is_stateful and made._control_flow_context is None:
            made._add_control_inputs(self._effects[-1:])
            self._effects.append(made)
        return made

    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> ControlScope:
        """Only leaves the dependencies around: effects run in their order anyway."""
        return super().control_dependencies(None if control_inputs is None else [])

    def values_of(self, tensors: Sequence[Tensor]) -> list[Any]:
        """The values of tensors. All effects so far run before.

        Raises:
          errors.OpError: of an op that has failed.
        """
        effects, self._effects = self._effects, []
        wanted = [t for t in tensors if t not in self._values]
        wanted += [t for op in effects for t in op.outputs if _is_fetched(t) and t not in wanted]
        if wanted or effects:
            found = self._run([*wanted, *effects])
            self._values.update(zip(wanted, found))
        return [self._values[t] for t in tensors]

    def _run(self, fetches: list[Any]) -> list[Any]:
        if self._session is None:
            self._session = _LocalSession(graph=self, config=ConfigProto(allow_soft_placement=True))
        try:
            return self._session.run(fetches, self._values)  # type: ignore[no-any-return]
        except errors.OpError as error:  # its operation is none of the graph whose step runs the function
            raise errors.from_code(error.error_code, str(error)) from error


def _is_fetched(output: Tensor) -> bool:
    """Whether the output of an effect is kept. Handles and variables are asked for again, which changes nothing."""
    return not output.dtype._is_ref_dtype and output.dtype not in (dtypes.resource, dtypes.variant)


class _LocalSession(Session):
    """A session in this process, also where others belong to a server."""

    def _connect(self) -> MasterClient:
        self._target = ""
        return super()._connect()

    def _note_growth(self, operations: list[Operation]) -> None:
        """Its graph grows with each value that is asked for."""
