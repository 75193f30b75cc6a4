"""Recurrent layers of ``tf.keras`` as TensorFlow 1.15 has them: nested inputs and states, time first, stacked cells.

Keras 2.3's `RNN` knows one input of three dimensions and states that are vectors. The methods below take the place of
its own; the cells, and the layers that name them (`LSTM`, `GRU`, `SimpleRNN`), stay.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from tfmini.compat.tf_keras import counted_ops, op_layers, state
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.layers.rnn_cells import RNNCell
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.shape import shape as shape_of
from tfmini.shapes import TensorShape


def apply(root: ModuleType) -> None:
    """Changes the recurrent layers of the copy, and adds those of TensorFlow's second version."""
    recurrent: Any = root.layers.recurrent
    for methods, cls in ((_RNN, recurrent.RNN), (_StackedRNNCells, recurrent.StackedRNNCells)):
        for name, value in vars(methods).items():
            if not name.startswith("__") or name in ("__init__", "__call__"):
                setattr(cls, name, value)
    for cell in (recurrent.SimpleRNNCell, recurrent.GRUCell, recurrent.LSTMCell):
        cell.get_initial_state = initial_state_of
    for cell in (recurrent.GRUCell, recurrent.LSTMCell, root.layers.convolutional_recurrent.ConvLSTM2DCell):
        cell.build = _counted(cell.build)
    _change_wrappers(root)
    root.backend.rnn = root.backend.tensorflow_backend.tf_keras_backend.rnn
    root.backend.learning_phase_scope = state.learning_phase_scope
    recurrent.PeepholeLSTMCell = root.layers.PeepholeLSTMCell = _peephole_cell(root)
    root.layers.recurrent_v2 = _second_version(root)


def _counted(build: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(build)
    def counted_build(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        if type(self).__name__ in ("GRUCell", "LSTMCell", "ConvLSTM2DCell"):  # not those of a program
            counted_ops.count_build(self)

    return counted_build


def _has_argument(function: Callable[..., Any], name: str) -> bool:
    return bool(state.library_root().utils.generic_utils.has_arg(function, name))


def _is_layer(value: object) -> bool:
    return isinstance(value, state.library_root().layers.Layer)


# ---- States ----------------------------------------------------------------------------------------------------------


def initial_state_of(cell: Any, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
    """Zeros for the states of a cell: as many rows as its inputs have, or ``batch_size``.

    Raises:
      ValueError: neither inputs nor a batch size and a dtype.
    """
    if inputs is not None:
        batch_size, dtype = shape_of(inputs)[0], inputs.dtype
    if batch_size is None or dtype is None:
        raise ValueError(
            "batch_size and dtype cannot be None while constructing initial state without inputs:"
            f" batch_size={batch_size}, dtype={dtype}"
        )
    return nest.map_structure(lambda size: zeros([batch_size, *_sizes(size)], dtype), cell.state_size)


def _sizes(size: Any) -> Any:
    """The shape of a state without its batch."""
    return TensorShape(size if isinstance(size, TensorShape) else [size]).as_list()


def _listed(value: Any) -> Any:
    """The states of a cell, which gets a list also if it has one only."""
    return value if nest.is_nested(value) else [value]


def _first_size(cell: Any) -> Any:
    """The size of a cell's output: what it says, else that of its first state."""
    size = getattr(cell, "output_size", None)
    return nest.flatten(cell.state_size)[0] if size is None else size


class _RNN:
    """The methods of ``tf.keras.layers.RNN``; `self` is such a layer."""

    # Of layers with an `__init__` of their own (`CuDNNLSTM`).
    time_major = zero_output_for_mask = False
    _input_structure: Any = None  # of nested inputs, as the last call got them

    def __init__(
        self: Any, cell: Any, return_sequences: bool = False, return_state: bool = False, go_backwards: bool = False,
        stateful: bool = False, unroll: bool = False, time_major: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        recurrent = state.library_root().layers.recurrent
        cell = recurrent.StackedRNNCells(cell) if isinstance(cell, (list, tuple)) else cell
        for name in ("call", "state_size"):
            if not hasattr(cell, name):
                raise ValueError(
                    f"The RNN cell, {cell}, has no `{name}`: RNN needs a cell with `call` and `state_size`."
                )
        self.zero_output_for_mask = kwargs.pop("zero_output_for_mask", False)
        if "input_shape" not in kwargs and ("input_dim" in kwargs or "input_length" in kwargs):
            kwargs["input_shape"] = (kwargs.pop("input_length", None), kwargs.pop("input_dim", None))
        super(recurrent.RNN, self).__init__(**kwargs)
        self._set_cell(cell)
        self.return_sequences, self.return_state = return_sequences, return_state
        self.go_backwards, self.stateful, self.unroll, self.time_major = go_backwards, stateful, unroll, time_major
        self.supports_masking = True
        self.input_spec = self.state_spec = self._states = self.constants_spec = self._num_constants = None

    @property
    def states(self: Any) -> Any:
        """The variables of the states, if they are kept; else None for each."""
        if self._states is None:
            return _listed(nest.map_structure(lambda _: None, self.cell.state_size))
        return self._states

    @states.setter
    def states(self: Any, states: Any) -> None:
        self._states = states

    def compute_output_shape(self: Any, input_shape: Any) -> Any:
        """The shape of the output, then those of the states, as TensorShapes."""
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        shape = TensorShape(nest.flatten(shape)[0] if _is_structure(shape) else shape).as_list()
        batch, time = shape[self.time_major], shape[not self.time_major]
        lead = [] if not self.return_sequences else [time, batch] if self.time_major else [batch, time]
        found = nest.map_structure(
            lambda size: TensorShape([*(lead or [batch]), *_sizes(size)]), _first_size(self.cell)
        )
        if not self.return_state:
            return found
        return [*nest.flatten(found), *(TensorShape([batch, *_sizes(s)]) for s in nest.flatten(self.cell.state_size))]

    def compute_mask(self: Any, inputs: Any, mask: Any) -> Any:
        """That of the first input, for the output of all steps; the states have none."""
        found = nest.flatten(mask)[0] if self.return_sequences else None
        outputs = [found] * len(nest.flatten(_first_size(self.cell)))
        masks = outputs + [None for _ in nest.flatten(self.states)] if self.return_state else outputs
        return masks if len(masks) > 1 else found

    def build(self: Any, input_shape: Any) -> None:
        """Builds the cell for the inputs of a step, and checks the shapes of given states."""
        shapes = input_shape if isinstance(input_shape, list) else [input_shape]
        count = self._input_count()
        own = [tuple(TensorShape(shape).as_list()) for shape in shapes[:count]]
        specs = [_spec(_without_time(shape, self.time_major, self.stateful)) for shape in own]
        self.input_spec = [*specs, *(self.input_spec or [])[count:]]
        if _is_layer(self.cell) and not self.cell.built:
            steps = [shape[1:] if self.time_major else shape[:1] + shape[2:] for shape in own]
            self.cell.build(self._structured(steps))
            self.cell.built = True
        self._check_state_spec()
        if self.stateful:
            self.reset_states()
        self.built = True

    def _input_count(self: Any) -> int:
        return 1 if self._input_structure is None else len(nest.flatten(self._input_structure))

    def _structured(self: Any, flat: list[Any]) -> Any:
        """What belongs to the inputs in their structure: shapes stay whole, since they are no structures."""
        if self._input_structure is None:
            return flat[0]
        shapes = [TensorShape(x) if isinstance(x, tuple) else x for x in flat]
        return nest.pack_sequence_as(self._input_structure, shapes)

    def _check_state_spec(self: Any) -> None:
        sizes = nest.flatten(self.cell.state_size)
        if self.state_spec is None:
            self.state_spec = [_spec((None, *_sizes(size))) for size in sizes]
        specs = nest.flatten(self.state_spec)
        fits = [TensorShape(spec.shape[1:]).is_compatible_with(_sizes(size)) for spec, size in zip(specs, sizes)]
        if len(specs) != len(sizes) or not all(fits):
            raise ValueError(
                "An `initial_state` was passed that is not compatible with `cell.state_size`. Received"
                f" `state_spec`={[spec.shape for spec in specs]}; however `cell.state_size` is {self.cell.state_size}"
            )

    def get_initial_state(self: Any, inputs: Any) -> Any:
        """Zeros, or what the cell says."""
        first = nest.flatten(inputs)[0]
        rows, dtype = shape_of(first)[int(self.time_major)], first.dtype
        if hasattr(self.cell, "get_initial_state"):
            return _listed(self.cell.get_initial_state(inputs=None, batch_size=rows, dtype=dtype))
        return _listed(initial_state_of(self.cell, None, rows, dtype))

    def __call__(self: Any, inputs: Any, initial_state: Any = None, constants: Any = None, **kwargs: Any) -> Any:
        inputs, states, constants = self._sorted(inputs, initial_state, constants)
        more = [*(states or []), *(constants or [])]
        op_layers.make_layers(state.library_root(), more)
        if states is not None:
            self.state_spec = [_spec(_shape(x)) for x in states]
        if constants is not None:
            self._num_constants = len(constants)
        K = state.library_root().backend  # noqa: N806
        of_layers = [bool(K.is_keras_tensor(x)) for x in more]
        if any(of_layers) and not all(of_layers):
            raise ValueError(
                "The initial state or constants of an RNN layer cannot be a mix of tensors of layers and other tensors."
            )
        own = (self.input_spec or [None] * len(inputs))[: len(inputs)]
        if any(of_layers):
            inputs, self.input_spec = [*inputs, *more], [*own, *(_spec(_shape(x)) for x in more)]
        else:
            given = {"initial_state": states, "constants": constants}
            kwargs.update({name: value for name, value in given.items() if value is not None})
        called = _inherited(self).__call__
        outputs = called(inputs if len(inputs) > 1 else inputs[0], **kwargs)
        self.input_spec = (self.input_spec or [])[: len(own)] or None
        return self._with_states(outputs)

    def _sorted(self: Any, inputs: Any, states: Any, constants: Any) -> tuple[Any, Any, Any]:
        """The inputs, states and constants of a call as flat lists: all may come as a list, as from a file."""
        if isinstance(inputs, list) and states is None and constants is None:
            last = len(inputs) - (self._num_constants or 0)
            count = self._input_count()
            inputs, states, constants = inputs[:count], inputs[count:last] or None, inputs[last:] or None
            inputs = self._structured(inputs)
        inputs = inputs[0] if isinstance(inputs, list) and len(inputs) == 1 else inputs
        self._input_structure = nest.map_structure(lambda _: None, inputs) if nest.is_nested(inputs) else None
        self.input_spec = None if not self.built and len(nest.flatten(inputs)) > 1 else self.input_spec
        lists = (None if x is None else nest.flatten(x) for x in (states, constants))
        return (nest.flatten(inputs), *lists)  # type: ignore[return-value]

    def _with_states(self: Any, outputs: Any) -> Any:
        """The outputs of a call, whose states have the structure of the cell's."""
        sizes = self.cell.state_size
        if not self.return_state or not any(map(nest.is_nested, sizes if nest.is_nested(sizes) else [])):
            return outputs
        count = len(outputs) - len(nest.flatten(sizes))
        return [*outputs[:count], *nest.pack_sequence_as(sizes, outputs[count:])]

    def call(
        self: Any, inputs: Any, mask: Any = None, training: Any = None, initial_state: Any = None, constants: Any = None
    ) -> Any:
        """Runs the cell over the steps of the inputs; in a list, states and constants follow them."""
        flat, count = nest.flatten(inputs), self._input_count()
        flat, more = flat[:count], flat[count:]
        if more:
            last = len(more) - (self._num_constants or 0)
            initial_state, constants = more[:last] or initial_state, more[last:] or constants
        inputs = self._structured(flat)
        states = self._start(inputs, initial_state)
        for cell in [self.cell, *getattr(self.cell, "cells", ())]:
            if hasattr(cell, "_dropout_mask"):
                cell._dropout_mask = cell._recurrent_dropout_mask = None
        last_output, outputs, states = self._run(inputs, states, nest.flatten(mask)[0], training, constants)
        if self.stateful:
            self.add_update(list(zip(nest.flatten(self.states), states)), inputs)
        found = nest.flatten(outputs if self.return_sequences else last_output)
        found = found + states if self.return_state else found
        if _depends_on_phase(last_output):
            for x in found:
                x._uses_learning_phase = True
        return found if len(found) > 1 else found[0]

    def _start(self: Any, inputs: Any, initial_state: Any) -> list[Any]:
        """The states before the first step."""
        if initial_state is None:
            initial_state = self.states if self.stateful else self.get_initial_state(inputs)
        found, needed = nest.flatten(initial_state), len(nest.flatten(self.states))
        if len(found) != needed:
            raise ValueError(f"Layer has {needed} states but was passed {len(found)} initial states.")
        return [convert_to_tensor(x) for x in found]  # cells write `h *= mask`, which would change a variable

    def _run(
        self: Any, inputs: Any, states: list[Any], mask: Any, training: Any, constants: Any
    ) -> tuple[Any, Any, list[Any]]:
        """The last output, all outputs, and the last states."""
        first = nest.flatten(inputs)[0]
        if self.unroll and first.raw_shape[not self.time_major] is None:
            raise ValueError(
                "Cannot unroll a RNN if the time dimension is undefined: give the first layer an `input_shape`,"
                " `batch_input_shape` or (Embedding) `input_length` with it, or Input a `shape`."
            )
        if constants and not _has_argument(self.cell.call, "constants"):
            raise ValueError("RNN cell does not support constants")
        more = {"constants": list(constants)} if constants else {}
        more.update({"training": training} if _has_argument(self.cell.call, "training") else {})

        def step(x: Any, before: list[Any]) -> tuple[Any, list[Any]]:
            packed = nest.pack_sequence_as(_listed(self.cell.state_size), before)
            # A cell of tf.nn.rnn_cell makes its variables when it is called.
            call: Any = self.cell if isinstance(self.cell, RNNCell) else self.cell.call
            output, after = call(x, packed, **more)
            return output, nest.flatten(after)

        rnn = state.library_root().backend.tensorflow_backend.tf_keras_backend.rnn
        return rnn(  # type: ignore[no-any-return]
            step, inputs, states, self.go_backwards, mask, unroll=self.unroll, time_major=self.time_major,
            zero_output_for_mask=self.zero_output_for_mask,
        )  # fmt: skip

    def reset_states(self: Any, states: Any = None) -> None:
        """Sets the kept states to zeros or to arrays.

        Raises:
          AttributeError: the layer keeps none.
          ValueError: the size of the batch is unknown; arrays of other shapes.
        """
        if not self.stateful:
            raise AttributeError("Layer must be stateful.")
        spec = nest.flatten(self.input_spec)[0] if self.input_spec else None
        rows = None if spec is None or spec.shape is None else spec.shape[self.time_major]
        if rows is None:
            raise ValueError(
                "If a RNN is stateful, it needs to know its batch size: give the first layer a `batch_input_shape`, or"
                " Input a `batch_shape`."
            )
        shapes = [(rows, *_sizes(size)) for size in nest.flatten(self.cell.state_size)]
        K = state.library_root().backend  # noqa: N806
        if nest.flatten(self.states)[0] is None:
            made = [K.zeros(shape) for shape in shapes]
            self.states = nest.pack_sequence_as(_listed(self.cell.state_size), made)
        values = [np.zeros(shape) for shape in shapes] if states is None else nest.flatten(states)
        if len(values) != len(shapes):
            raise ValueError(f"Layer {self.name} expects {len(shapes)} states, but it received {len(values)}: {states}")
        for i, (value, shape) in enumerate(zip(values, shapes)):
            if value.shape != shape:
                raise ValueError(
                    f"State {i} is incompatible with layer {self.name}: expected shape={shape}, found"
                    f" shape={value.shape}"
                )
        K.batch_set_value(list(zip(nest.flatten(self.states), values)))

    def get_config(self: Any) -> dict[str, Any]:
        names = ("return_sequences", "return_state", "go_backwards", "stateful", "unroll", "time_major")
        config = {name: getattr(self, name) for name in names}
        if self._num_constants is not None:
            config["num_constants"] = self._num_constants
        if self.zero_output_for_mask:
            config["zero_output_for_mask"] = True
        config["cell"] = {"class_name": type(self.cell).__name__, "config": self.cell.get_config()}
        return {**_inherited(self).get_config(), **config}

    @property
    def updates(self: Any) -> list[Any]:
        """Those of the layer and of its cells."""
        return list(
            dict.fromkeys([*_inherited(self).updates, *(u for cell in _cells(self.cell) for u in cell.updates)])
        )


def _cells(cell: Any) -> list[Any]:
    """The cells of a stack that are layers."""
    return [one for one in getattr(cell, "cells", [cell]) if _is_layer(one)]


def _inherited(layer: Any) -> Any:
    """What a recurrent layer inherits: the methods of `Layer`."""
    return super(state.library_root().layers.recurrent.RNN, layer)


def _is_structure(shape: Any) -> bool:
    """Whether a value is a structure of shapes, and no shape."""
    return isinstance(shape, tuple) and any(isinstance(part, (tuple, list, TensorShape)) for part in shape)


def _without_time(shape: tuple[Any, ...], time_major: bool, stateful: bool) -> tuple[Any, ...]:
    """A shape of inputs for any number of steps, and any batch unless states are kept."""
    axes = {int(not time_major), *(() if stateful else (int(time_major),))}
    return tuple(None if i in axes else size for i, size in enumerate(shape))


def _shape(tensor: Any) -> Any:
    """The shape of a tensor or variable, with None for what is unknown."""
    return TensorShape(tensor.shape).as_list()


def _spec(shape: Any) -> Any:
    return state.library_root().layers.InputSpec(shape=tuple(shape))


def _depends_on_phase(output: Any) -> bool:
    phase = state.known_learning_phase()
    if phase is None or isinstance(phase, int):
        return False
    targets = set(nest.flatten(output))
    return not targets.isdisjoint(state.reachable([phase], targets))


# ---- Cells -----------------------------------------------------------------------------------------------------------


class _StackedRNNCells:
    """The methods of ``tf.keras.layers.StackedRNNCells``: the states of each cell stay together."""

    @property
    def state_size(self: Any) -> tuple[Any, ...]:
        """The sizes of the states of each cell."""
        return tuple(cell.state_size for cell in (self.cells[::-1] if self.reverse_state_order else self.cells))

    @property
    def output_size(self: Any) -> Any:
        """The size of the last cell's output."""
        return _first_size(self.cells[-1])

    def get_initial_state(self: Any, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
        """The states of each cell."""
        found = []
        for cell in self.cells[::-1] if self.reverse_state_order else self.cells:
            own = getattr(cell, "get_initial_state", functools.partial(initial_state_of, cell))
            found.append(own(inputs=inputs, batch_size=batch_size, dtype=dtype))
        return tuple(found)

    def call(self: Any, inputs: Any, states: Any, constants: Any = None, **kwargs: Any) -> Any:
        """The output of the last cell, and the states of all."""
        order = -1 if self.reverse_state_order else 1
        nested = nest.pack_sequence_as(self.state_size, nest.flatten(states))[::order]
        after = []
        for cell, own in zip(self.cells, nested):
            more = {"constants": constants} if _has_argument(cell.call, "constants") else {}
            inputs, new = cell.call(inputs, _listed(own), **more, **kwargs)
            after.append(new)
        return inputs, nest.pack_sequence_as(self.state_size, nest.flatten(after[::order]))

    def build(self: Any, input_shape: Any) -> None:
        """Builds each cell for the output of the one before."""
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        for cell in self.cells:
            if _is_layer(cell) and not cell.built:
                cell.build(shape)
                cell.built = True
            sizes = _first_size(cell)
            batch = nest.flatten(shape)[0]
            shape = nest.map_structure(lambda size, batch=batch: (batch, *_sizes(size)), sizes)
        self.built = True


def _peephole_cell(root: ModuleType) -> type:
    base: Any = root.layers.LSTMCell

    class PeepholeLSTMCell(base):
        """An LSTM cell whose gates see its state."""

        def build(self, input_shape: Any) -> None:
            super().build(input_shape)
            self.input_gate_peephole_weights, self.forget_gate_peephole_weights, self.output_gate_peephole_weights = (
                self.add_weight(f"{gate}_gate_peephole_weights", (self.units,), initializer=self.kernel_initializer)
                for gate in ("input", "forget", "output")
            )

        def call(self, inputs: Any, states: Any, training: Any = None) -> Any:
            K, (h_before, c_before) = root.backend, states  # noqa: N806
            left = zip(
                "ifco", self._left(inputs, "dropout", training), self._left(h_before, "recurrent_dropout", training)
            )
            sums = [
                K.dot(x, getattr(self, f"kernel_{gate}")) + K.dot(h, getattr(self, f"recurrent_kernel_{gate}"))
                for gate, x, h in left
            ]
            if self.use_bias:
                sums = [K.bias_add(x, getattr(self, f"bias_{gate}")) for gate, x in zip("ifco", sums)]
            i, f, c, o = sums
            i = self.recurrent_activation(i + self.input_gate_peephole_weights * c_before)
            f = self.recurrent_activation(f + self.forget_gate_peephole_weights * c_before)
            c = f * c_before + i * self.activation(c)
            h = self.recurrent_activation(o + self.output_gate_peephole_weights * c) * self.activation(c)
            return h, [h, c]

        def _left(self, x: Any, kind: str, training: Any) -> list[Any]:
            """Inputs or a state after dropout, for each of the four gates."""
            rate, kept = getattr(self, kind), f"_{kind}_mask"
            if not 0 < rate < 1:
                return [x] * 4
            if getattr(self, kept) is None:  # a layer's call forgets those of the call before
                ones, make = root.backend.ones_like(x), root.layers.recurrent._generate_dropout_mask
                setattr(self, kept, make(ones, rate, training=training, count=4))
            return [x * mask for mask in getattr(self, kept)]

    PeepholeLSTMCell.__module__ = root.layers.recurrent.__name__
    return PeepholeLSTMCell


# ---- Wrappers --------------------------------------------------------------------------------------------------------


def _change_wrappers(root: ModuleType) -> None:
    wrappers = root.layers.wrappers
    wrappers.Bidirectional._set_sublayers = _set_sublayers
    for cls in (wrappers.Wrapper, wrappers.Bidirectional):  # all find them as `Layer` does
        del cls.trainable, cls.trainable_weights, cls.non_trainable_weights
    wrapper = wrappers.Wrapper  # it may have weights, updates and losses of its own
    del wrapper.get_weights, wrapper.set_weights, wrapper.updates, wrapper.losses
    wrapper.build = _build_wrapper
    for cls, change in ((wrappers.Bidirectional, _both_shapes), (wrappers.TimeDistributed, _tensor_shape)):
        cls.compute_output_shape = change(cls.compute_output_shape)
    wrappers.Bidirectional.get_config = _with_backward_layer(wrappers.Bidirectional.get_config)
    wrappers.Bidirectional.from_config = classmethod(_bidirectional_from_config)


def _build_wrapper(self: Any, input_shape: Any = None) -> None:
    """Builds the wrapped layer as well, unless it is built."""
    if not self.layer.built:
        self.layer.build(input_shape)
    self.built = True


def check_wrapped(name: str, **layers: Any) -> None:
    """Refuses what is no layer; raises ValueError."""
    for argument, layer in layers.items():
        if layer is not None and not _is_layer(layer):
            what = f"`{name}` layer" if argument == "layer" else f"the `{argument}` of `{name}`"
            raise ValueError(f"Please initialize {what} with a `Layer` instance. You passed: {layer}")


def _set_sublayers(self: Any, layer: Any, backward_layer: Any = None) -> None:
    """The layers of both directions: of the configuration of one, unless the backward one is given."""
    self.forward_layer = _again(layer)
    self.backward_layer = backward_layer or _again(layer, not layer.go_backwards)
    self._backward_config = backward_layer and backward_layer.get_config()
    for direction in ("forward", "backward"):
        made = getattr(self, f"{direction}_layer")
        made.name = f"{direction}_{made.name}"
        if hasattr(made, "zero_output_for_mask"):
            made.zero_output_for_mask = made.return_sequences
    if self.forward_layer.go_backwards == self.backward_layer.go_backwards:
        raise ValueError("Forward layer and backward layer should have different `go_backwards` value.")
    for name in ("stateful", "return_sequences", "return_state"):
        values = [getattr(made, name) for made in (self.forward_layer, self.backward_layer)]
        if values[0] != values[1]:
            raise ValueError(
                "Forward layer and backward layer are expected to have the same value for attribute"
                f" {name}, got {values[0]} and {values[1]}"
            )


def _again(layer: Any, go_backwards: bool | None = None) -> Any:
    """A layer of the configuration of another, whose cells may be of the program."""
    config = layer.get_config()
    config["go_backwards"] = config["go_backwards"] if go_backwards is None else go_backwards
    if not _has_argument(type(layer).from_config, "custom_objects"):
        return type(layer).from_config(config)
    cell = getattr(layer, "cell", None)
    classes = {type(one).__name__: type(one) for one in [cell, *getattr(cell, "cells", ())] if one is not None}
    return type(layer).from_config(config, custom_objects=classes)


def _tensor_shape(compute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compute)
    def compute_output_shape(self: Any, input_shape: Any) -> Any:
        return TensorShape(compute(self, tuple(TensorShape(input_shape).as_list())))

    return compute_output_shape


def _both_shapes(compute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compute)
    def compute_output_shape(self: Any, input_shape: Any) -> Any:
        """The shapes of the merged output, or of both, and of the states of both directions."""
        found = self.forward_layer.compute_output_shape(input_shape)
        output, *states = found if isinstance(found, list) and self.return_state else [found]
        sizes: list[Any] = TensorShape(output).as_list()
        if self.merge_mode == "concat":
            sizes[-1] *= 2
        outputs = [TensorShape(sizes)] * (2 if self.merge_mode is None else 1)
        return [*outputs, *states, *states] if len(outputs) > 1 or states else outputs[0]

    return compute_output_shape


def _with_backward_layer(get_config: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(get_config)
    def get_config_of_both(self: Any) -> dict[str, Any]:
        config = get_config(self)
        if self._backward_config:
            config["backward_layer"] = {
                "class_name": type(self.backward_layer).__name__,
                "config": self._backward_config,
            }
        return config  # type: ignore[no-any-return]

    return get_config_of_both


def _bidirectional_from_config(cls: Any, config: dict[str, Any], custom_objects: Any = None) -> Any:
    deserialize = state.library_root().layers.deserialize
    config = dict(config)
    constants = config.pop("num_constants", None)
    for name in ("layer", "backward_layer"):
        if name in config:
            config[name] = deserialize(config[name], custom_objects=custom_objects)
    made = cls(**config)
    made._num_constants = constants
    return made


# ---- The second version, of `tensorflow.python.keras.layers.recurrent_v2` -------------------------------------------


def _second_version(root: ModuleType) -> ModuleType:
    """The module ``tensorflow.python.keras.layers.recurrent_v2``, whose layers have the defaults of cuDNN's kernels."""
    made, recurrent = ModuleType(f"{root.layers.__name__}.recurrent_v2"), root.layers.recurrent
    vars(made).update({name: value for name, value in vars(recurrent).items() if not name.startswith("__")})
    gates = {"recurrent_activation": "sigmoid", "implementation": 2}
    for name, defaults in {"LSTM": gates, "GRU": {**gates, "reset_after": True}}.items():
        for suffix in ("", "Cell"):
            cls = _with_defaults(getattr(recurrent, name + suffix), defaults, made.__name__, not suffix)
            setattr(made, name + suffix, cls)
    return made


def _with_defaults(base: Any, defaults: dict[str, Any], module: str, is_layer: bool) -> type:
    def __init__(self: Any, units: int, *args: Any, **kwargs: Any) -> None:
        given = {"recurrent_activation"} if len(args) > 1 else set()
        base.__init__(self, units, *args, **{k: v for k, v in defaults.items() if k not in given} | kwargs)
        if is_layer:
            self.could_use_cudnn = _is_cudnns(self)

    return type(base.__name__, (base,), {"__init__": __init__, "__module__": module})


def _is_cudnns(layer: Any) -> bool:
    """Whether cuDNN's kernel computes the same as a layer; here none is used."""
    activation, gates = (getattr(x, "__name__", "") for x in (layer.activation, layer.recurrent_activation))
    plain = layer.recurrent_dropout == 0 and not layer.unroll and layer.use_bias and getattr(layer, "reset_after", True)
    return bool(activation == "tanh" and gates == "sigmoid" and plain)
