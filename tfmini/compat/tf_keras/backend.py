"""``tensorflow.python.keras.backend``, as far as Keras 2.3 calls it: variables, functions, loops, losses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.compat.tf_keras import state
from tfmini.compat.tf_keras.state import (  # noqa: F401 - names of this module in TensorFlow
    cast_to_floatx,
    clear_session,
    epsilon,
    floatx,
    get_graph,
    get_session,
    get_uid,
    image_data_format,
    initialize_variables,
    learning_phase,
    learning_phase_scope,
    manual_variable_initialization,
    reset_uids,
    set_epsilon,
    set_floatx,
    set_image_data_format,
    set_learning_phase,
    set_session,
    symbolic_learning_phase,
    track_variable,
)
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.graph import nest
from tfmini.graph.conversion import SparseComponents, SparseTensorValue, convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies

# What Keras has under the same name comes with its module: here, these names are Keras's (`__getattr__`).
from tfmini.ops.array import filling, joining, layout
from tfmini.ops.array import identity as identities
from tfmini.ops.array import shape as shapes
from tfmini.ops.array.constant import constant as constant_tensor
from tfmini.ops.array.identity import placeholder as dense_placeholder
from tfmini.ops.array.joining import unstack
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.composites import SparseTensor
from tfmini.ops.control import group
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.math import comparison, unary
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.sums import clip_by_value
from tfmini.ops.nn.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
    sparse_softmax_cross_entropy_with_logits,
)
from tfmini.ops.ragged import RaggedTensor
from tfmini.ops.random_functions import random_normal as normal
from tfmini.ops.random_functions import random_uniform as uniform
from tfmini.ops.random_functions import truncated_normal as truncated
from tfmini.ops.sparse.functions import sparse_placeholder
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.base import Variable

dtypes_module, _initialize_variables = dtypes, initialize_variables  # their names in this module of TensorFlow
VariableV1: Any = Variable  # takes the arguments of all kinds of variables

# ---- Variables and other tensors -------------------------------------------------------------------------------------


def variable(value: Any, dtype: DTypeLike | None = None, name: str | None = None, constraint: Any = None) -> Any:
    """A resource variable that Keras initializes; a scipy matrix becomes a sparse tensor."""
    dtype = dtypes.as_dtype(dtype or floatx())
    if hasattr(value, "tocoo"):
        sparse: Any = SparseTensor(*_sparse_value(value))
        sparse._uses_learning_phase = False
        return sparse
    trainable, collections = state.kind_of_variables()
    made: Any = VariableV1(
        value, trainable, collections, dtype=dtype, name=name, constraint=constraint, use_resource=True
    )
    made._keras_shape = tuple(made.shape.as_list())
    track_variable(made)
    return made


def _sparse_value(matrix: Any) -> SparseTensorValue:
    matrix = matrix.tocoo()
    return SparseTensorValue(np.stack([matrix.row, matrix.col], 1).astype(np.int64), matrix.data, matrix.shape)


def constant(
    value: TensorLike, dtype: DTypeLike | None = None, shape: ShapeLike = None, name: str | None = None
) -> Tensor:
    """A constant of the default element type."""
    return constant_tensor(value, dtype or floatx(), shape, name or "Const")


def placeholder(
    shape: Any = None, ndim: int | None = None, dtype: DTypeLike | None = None, sparse: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """A placeholder of a shape, or of ``ndim`` unknown sizes."""
    shape = (None,) * ndim if shape is None and ndim else shape
    make = sparse_placeholder if sparse else dense_placeholder
    return make(dtype or floatx(), shape=shape, name=name)


def batch_get_value(tensors: Sequence[Any]) -> list[Any]:
    """The values of variables, as arrays."""
    return get_session().run(list(tensors)) if tensors else []


def set_value(x: Any, value: Any) -> None:
    """Sets a variable to an array."""
    batch_set_value([(x, value)])


def batch_set_value(tuples: Iterable[tuple[Any, Any]]) -> None:
    """Sets variables to arrays, in one step."""
    assignments, feeds = [], {}
    for x, value in tuples:
        value = np.asarray(value, dtype=x.dtype.base_dtype.as_numpy_dtype)
        if not hasattr(x, "_assign_placeholder"):
            x._assign_placeholder = dense_placeholder(x.dtype.base_dtype, shape=[None] * value.ndim)
            x._assign_op = x.assign(x._assign_placeholder)
        assignments.append(x._assign_op)
        feeds[x._assign_placeholder] = value
    if assignments:
        get_session().run(assignments, feed_dict=feeds)


def random_normal(
    shape: ShapeLike, mean: float = 0.0, stddev: float = 1.0, dtype: DTypeLike | None = None, seed: int | None = None
) -> Tensor:
    """Normal random numbers."""
    return normal(shape, mean, stddev, dtype or floatx(), _seed(seed))


def truncated_normal(
    shape: ShapeLike, mean: float = 0.0, stddev: float = 1.0, dtype: DTypeLike | None = None, seed: int | None = None
) -> Tensor:
    """Normal random numbers, none farther than two deviations from the mean."""
    return truncated(shape, mean, stddev, dtype or floatx(), _seed(seed))


def random_uniform(
    shape: ShapeLike, minval: float = 0.0, maxval: float = 1.0, dtype: DTypeLike | None = None, seed: int | None = None
) -> Tensor:
    """Uniform random numbers."""
    return uniform(shape, minval, maxval, dtype or floatx(), _seed(seed))


def random_binomial(
    shape: ShapeLike, p: float = 0.0, dtype: DTypeLike | None = None, seed: int | None = None
) -> Tensor:
    """Ones with probability ``p``, else zeros."""
    dtype = dtype or floatx()
    chosen = comparison.less_equal(uniform(shape, dtype=dtype, seed=_seed(seed)), p)
    return where(chosen, filling.ones(shape, dtype), filling.zeros(shape, dtype))


def _seed(seed: int | None) -> int:
    return int(np.random.randint(10_000_000)) if seed is None else seed


def hard_sigmoid(x: TensorLike) -> Any:
    """A sigmoid of three straight pieces."""
    return clip_by_value(0.2 * convert_to_tensor(x) + 0.5, 0.0, 1.0)


# ---- Functions -------------------------------------------------------------------------------------------------------


class BackendFunction:
    """A step of the graph as a function of arrays: feeds its inputs, fetches its outputs, makes updates.

    Args:
      inputs: a structure of placeholders, which the arguments have, too.
      outputs: a structure of tensors.
      updates: assignments, or (variable, new value); they come after the first output.
      session_kwargs: ``feed_dict``, ``fetches``, ``options`` and ``run_metadata`` of its runs.
    """

    def __init__(
        self, inputs: Any, outputs: Any, updates: Any = None, name: str | None = None, **session_kwargs: Any
    ) -> None:
        if not isinstance(updates or [], (list, tuple)):
            raise TypeError("`updates` in a Keras backend function should be a list or tuple.")
        self.inputs = nest.flatten(inputs)
        self._structure = outputs
        self.outputs = [x if isinstance(x, SparseComponents) else identities.identity(x) for x in nest.flatten(outputs)]
        with control_dependencies([x for x in self.outputs[:1] if isinstance(x, Tensor)]):
            self.updates_op = group(*(assign(*u) if isinstance(u, tuple) else u for u in updates or ()))
        self.name = name
        self.feed_dict = session_kwargs.pop("feed_dict", None) or {}
        fetches = session_kwargs.pop("fetches", [])
        # Whole tensors, so that updates come with them: a fetched variable would not wait for its assignment.
        self.fetches = [identities.identity(x) for x in (fetches if isinstance(fetches, (list, tuple)) else [fetches])]
        self.fetch_callbacks: dict[Any, Callable[[Any], None]] = {}
        self.run_options = session_kwargs.pop("options", None)
        self.run_metadata = session_kwargs.pop("run_metadata", None)
        if session_kwargs:
            raise ValueError(f"Some keys in session_kwargs are not supported at this time: {list(session_kwargs)}")

    def __call__(self, inputs: Any) -> Any:
        """Runs the step.

        Args:
          inputs: a structure of arrays; a tensor stands for its value, None for what is not fed.
        """
        session = get_session()
        feeds = dict(self.feed_dict)
        symbolic = {}
        for tensor, value in zip(self.inputs, nest.flatten(inputs)):
            if isinstance(value, (Tensor, Variable)):
                symbolic[tensor] = value
            elif value is not None:
                feeds[tensor] = _fed(tensor, value)
        if symbolic:
            feeds.update(_values_of(session, symbolic, feeds))
        fetched, _, more = session.run(
            [self.outputs, self.updates_op, self.fetches], feeds, self.run_options, self.run_metadata
        )
        for tensor, value in zip(self.fetches, more):
            if tensor in self.fetch_callbacks:
                self.fetch_callbacks[tensor](value)
        return nest.pack_sequence_as(self._structure, fetched)


def _fed(tensor: Any, value: Any) -> Any:
    if isinstance(tensor, SparseComponents):
        return _sparse_value(value) if hasattr(value, "tocoo") else value
    return np.asarray(value, dtype=tensor.dtype.base_dtype.as_numpy_dtype)


def _values_of(session: Any, symbolic: dict[Any, Any], feeds: dict[Any, Any]) -> dict[Any, Any]:
    """Feeds by a step of its own: the tensors that stand for inputs, and the values of these inputs."""
    values = session.run(list(symbolic.values()), feeds)
    found = {source: value for source, value in zip(symbolic.values(), values) if isinstance(source, Tensor)}
    return {**found, **{t: _fed(t, value) for t, value in zip(symbolic, values)}}


def function(inputs: Any, outputs: Any, updates: Any = None, name: str | None = None, **kwargs: Any) -> BackendFunction:
    """A `BackendFunction`."""
    return BackendFunction(inputs, outputs, updates, name, **kwargs)


# ---- Loops over time -------------------------------------------------------------------------------------------------


def rnn(
    step_function: Callable[..., Any], inputs: Any, initial_states: Sequence[Any], go_backwards: bool = False,
    mask: Any = None, constants: Sequence[Any] | None = None, unroll: bool = False, input_length: Any = None,
    time_major: bool = False, zero_output_for_mask: bool = False,
) -> tuple[Any, Any, list[Any]]:  # fmt: skip
    """Iterates over the time of a tensor ``[batch, time, ...]``, or of a structure of them.

    Args:
      step_function: (input ``[batch, ...]``, states and constants) -> (output, new states); the output may be nested.
      mask: ``[batch, time]``; where it is False, states stay and the output is that of the step before.
      unroll: makes the ops of each step, instead of a loop; the time is static then.
      time_major: inputs, mask and outputs have the time first.
      zero_output_for_mask: a masked output is zero.

    Returns:
      The last output, all outputs ``[batch, time, ...]``, the last states.

    Raises:
      ValueError: fewer than three dimensions; to unroll an unknown time.
    """
    ordered = (lambda x: x) if time_major else _swapped
    flat = [ordered(x) for x in nest.flatten(inputs)]
    if mask is not None:
        mask = convert_to_tensor(mask)
        mask = mask if mask.dtype == dtypes.bool else identities.cast(mask, dtypes.bool)
        mask = ordered(shapes.expand_dims(mask, -1) if len(mask.shape) == 2 else mask)
    structure: list[Any] = []

    def step(x: list[Any], states: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        output, new = step_function(nest.pack_sequence_as(inputs, x), [*states, *(constants or ())])
        structure[:] = [output]
        return nest.flatten(output), list(new)

    loop = _Steps(step, flat, mask, go_backwards, zero_output_for_mask)
    last, outputs, states = loop.unrolled(list(initial_states)) if unroll else loop.looped(tuple(initial_states))
    for x in outputs:
        x.set_shape([flat[0].shape[0], flat[0].shape[1], *x.shape[2:]])
    packed = [nest.pack_sequence_as(structure[0], part) for part in (last, [ordered(x) for x in outputs])]
    return packed[0], packed[1], states


def _swapped(x: Tensor) -> Tensor:
    """A tensor with its first two axes exchanged."""
    return layout.transpose(x, [1, 0, *range(2, len(x.shape))])


class _Steps:
    """The steps of `rnn`, over lists of inputs and a mask with the time first."""

    def __init__(
        self, step: Callable[..., Any], inputs: list[Tensor], mask: Any, backwards: bool, zeroes: bool
    ) -> None:
        if any(len(x.shape) < 3 for x in inputs):
            raise ValueError("Input should be at least 3D.")
        self.step = step
        self.inputs = [layout.reverse(x, [0]) if backwards else x for x in inputs]
        self.mask = None if mask is None else layout.reverse(mask, [0]) if backwards else mask
        self.zeroes = zeroes

    def unrolled(self, states: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """The last output, all outputs and the last states, by ops for each step."""
        steps = self.inputs[0].shape.as_list()[0]
        if steps is None:
            raise ValueError("Unrolling requires a fixed number of timesteps.")
        outputs: list[list[Tensor]] = []
        masks = [None] * steps if self.mask is None else unstack(self.mask)
        for x, mask in zip(zip(*map(unstack, self.inputs)), masks):
            output, new = self.step(list(x), states)
            if mask is not None:
                before = list(map(filling.zeros_like, output)) if self.zeroes or not outputs else outputs[-1]
                output, new = _all_chosen(mask, output, before), _all_chosen(mask, new, states)
            outputs.append(output)
            states = new
        return outputs[-1], [joining.stack(parts) for parts in zip(*outputs)], states

    def looped(self, states: tuple[Any, ...]) -> tuple[list[Any], list[Any], list[Any]]:
        """The same by a while loop."""
        steps, static = shape_of(self.inputs[0])[0], self.inputs[0].shape.as_list()[0]
        example, _ = self.step([x[0] for x in self.inputs], list(states))
        inputs = [TensorArray(x.dtype, size=steps, tensor_array_name="input_ta").unstack(x) for x in self.inputs]
        masks = None
        if self.mask is not None:
            masks = TensorArray(dtypes.bool, size=steps, tensor_array_name="mask_ta").unstack(self.mask)
        outputs = [TensorArray(x.dtype, size=steps, tensor_array_name="output_ta") for x in example]

        def body(time: Tensor, made: list[TensorArray], before: list[Tensor], states: list[Any]) -> Any:
            output, new = self.step([x.read(time) for x in inputs], states)
            if masks is not None:
                mask = masks.read(time)
                output, new = _all_chosen(mask, output, before), _all_chosen(mask, new, states)
            for after, shape in zip(new, [one.shape for one in states]):
                if isinstance(after, Tensor):
                    after.set_shape(shape)
            kept = before if masks is None or self.zeroes else output
            return time + 1, [array.write(time, x) for array, x in zip(made, output)], kept, new

        zeros = [filling.zeros_like(x) for x in example]
        start = (constant_tensor(0, dtypes.int32, name="time"), outputs, zeros, list(states))
        _, outputs, _, last_states = while_loop(
            lambda time, *_: comparison.less(time, steps), body, start, parallel_iterations=32,
            swap_memory=True, maximum_iterations=static,
        )  # fmt: skip
        stacked, last = [array.stack() for array in outputs], [array.read(steps - 1) for array in outputs]
        for one, all_steps, x in zip(last, stacked, example):
            one.set_shape(x.shape)
            all_steps.set_shape([static, *x.shape.as_list()])
        return last, stacked, list(last_states)


def _all_chosen(mask: Tensor, new: Sequence[Any], old: Sequence[Any]) -> list[Any]:
    return [_chosen(mask, after, before) for after, before in zip(new, old)]


def _chosen(mask: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """``new`` where a mask ``[batch, 1]`` is True, else ``old``."""
    for _ in range(len(new.shape) - len(mask.shape)):
        mask = shapes.expand_dims(mask, -1)
    multiples: list[Any] = [1] + [shape_of(new)[i] for i in range(1, len(new.shape))]
    whole = layout.tile(mask, joining.stack(multiples))
    return where(whole, new, old)


# ---- Convolutions of weights of their own for each place ------------------------------------------------------------


def local_conv(
    inputs: Tensor, kernel: Any, kernel_size: Sequence[int], strides: Sequence[int], output_shape: Sequence[int],
    data_format: str | None = None,
) -> Tensor:  # fmt: skip
    """A convolution whose weights differ from place to place.

    Args:
      inputs: ``[batch, *sizes, channels]``, or ``[batch, channels, *sizes]`` with "channels_first".
      kernel: ``[places, product of kernel_size and channels, filters]``.
      output_shape: the sizes of the output; their product is the number of places.

    Returns:
      ``[batch, *output_shape, filters]``, or with the filters before the sizes.

    Raises:
      ValueError: another data format.
    """
    data_format = data_format or image_data_format()
    if data_format not in ("channels_first", "channels_last"):
        raise ValueError(f"Unknown data_format: {data_format}")
    before = [slice(None)] * (2 if data_format == "channels_first" else 1)
    width, rank = kernel.shape.as_list()[1], len(output_shape)
    windows = []
    for place in itertools.product(*map(range, output_shape)):
        window = [slice(i * stride, i * stride + size) for i, stride, size in zip(place, strides, kernel_size)]
        windows.append(shapes.reshape(inputs[(*before, *window)], [-1, width]))
    made = shapes.reshape(matmul(joining.stack(windows), kernel), [*output_shape, -1, kernel.shape.as_list()[2]])
    sizes = range(rank)
    return layout.transpose(made, [rank, rank + 1, *sizes] if len(before) == 2 else [rank, *sizes, rank + 1])


def local_conv1d(
    inputs: Tensor, kernel: Any, kernel_size: Sequence[int], strides: Sequence[int], data_format: str | None = None
) -> Tensor:
    """`local_conv` of one size, whose output is as long as the kernel says."""
    return local_conv(inputs, kernel, kernel_size, strides, kernel.shape.as_list()[:1], data_format)


local_conv2d = local_conv


# ---- Losses ----------------------------------------------------------------------------------------------------------
# As TensorFlow does, they take the logits of an output that is a softmax or a sigmoid: the logarithm of a rounded
# probability would lose what the logits say.


def _logits(output: Any, activation: str) -> Tensor | None:
    return output.op.inputs[0] if isinstance(output, Tensor) and output.op.type == activation else None


def categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Tensor:
    """The cross-entropy of each row of probabilities, or logits, with a row of target probabilities."""
    logits = output if from_logits else _logits(output, "Softmax")
    if logits is not None:
        return softmax_cross_entropy_with_logits_v2(labels=target, logits=logits, axis=axis)
    output = output / reduce_sum(output, axis, True)
    return -reduce_sum(target * unary.log(clip_by_value(output, epsilon(), 1.0 - epsilon())), axis)


def sparse_categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Tensor:
    """The cross-entropy of each row of probabilities, or logits, with a class number."""
    target, output = convert_to_tensor(target), convert_to_tensor(output)
    logits = output if from_logits else _logits(output, "Softmax")
    if logits is None:
        logits = unary.log(clip_by_value(output, epsilon(), 1.0 - epsilon()))
    rank = logits.shape.ndims
    if rank is None and axis != -1:
        raise ValueError(f"Cannot compute sparse categorical crossentropy with `axis={axis}` of an unknown rank")
    if rank is not None and axis % rank != rank - 1:
        order = [i for i in range(rank) if i != axis % rank]
        logits = layout.transpose(logits, [*order, axis % rank])
    target = identities.cast(shapes.reshape(target, [-1]), dtypes.int64)
    classes = None if rank is None else logits.shape.as_list()[-1]
    rows = shapes.reshape(logits, [-1, shape_of(logits)[-1] if classes is None else classes])
    found = sparse_softmax_cross_entropy_with_logits(labels=target, logits=rows)
    return shapes.reshape(found, shape_of(logits)[:-1]) if rank is None or rank >= 3 else found


def binary_crossentropy(target: Any, output: Any, from_logits: bool = False) -> Any:
    """The cross-entropy of each probability, or logit, with a target."""
    logits = output if from_logits else _logits(output, "Sigmoid")
    if logits is not None:
        return sigmoid_cross_entropy_with_logits(labels=target, logits=logits)
    output = clip_by_value(output, epsilon(), 1.0 - epsilon())
    return -(target * unary.log(output + epsilon()) + (1 - target) * unary.log(1 - output + epsilon()))


# ---- ``tensorflow.python.keras.utils.tf_utils`` ----------------------------------------------------------------------


def get_reachable_from_inputs(inputs: Any, targets: Any = None) -> set[Any]:
    """The tensors and operations that depend on ``inputs``."""
    return state.reachable(nest.flatten(inputs), None if targets is None else set(nest.flatten(targets)))


symbolic_types: set[type] = set()


def register_symbolic_tensor_type(cls: type) -> None:
    """Makes `is_symbolic_tensor` true for objects of a class that can be converted to tensors."""
    symbolic_types.add(cls)


def is_symbolic_tensor(tensor: object) -> bool:
    """Whether Keras takes an object as a tensor of the graph."""
    return isinstance(tensor, (Tensor, SparseTensor, RaggedTensor, Variable, *symbolic_types))


def track_tf_optimizer(tf_optimizer: object) -> None:
    """Nothing: `function` lets `get_session` initialize the variables of all optimizers."""


def __getattr__(name: str) -> Any:
    """The functions of ``tf.keras.backend`` that TensorFlow has here as well; they need the extra ``keras``."""
    if name.startswith("__"):
        raise AttributeError(name)
    from tfmini.compat import internals
    from tfmini.compat.tf_keras.library import library

    imported = {"variables_module": "variables"}.get(name, name)  # a module that this one imports in TensorFlow
    if imported != name or name.endswith("_ops"):
        return internals.module(f"python.ops.{imported}")
    return getattr(library().backend, name)
