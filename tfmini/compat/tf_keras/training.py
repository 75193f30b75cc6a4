"""How models of the copy train: the forms of their data, their targets and weights, what layers add to the loss.

`CHANGES` is a part of the table in `library`: the text of Keras's modules of training. `apply` does what is more than
a line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.compat.tf_keras import counted_ops, op_layers, saving, state, tracking
from tfmini.compat.tf_keras.model_inputs import ModelInputs, build_model, build_sequence, config_with_shape, set_inputs
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.prune import traverse
from tfmini.layers.base import Layer as TfLayer
from tfmini.ops.array.filling import ones
from tfmini.ops.array.identity import placeholder_with_default
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.composites import SparseTensor

_NEXT = "generator_output = next(output_generator)\n"
_NEXT_OR_END = """\
{indent}generator_output = _next_batch(output_generator, {counted})
{indent}if generator_output is None:
{indent}    {ending}
{indent}    break
"""


def _lines(*targets: tuple[str, str], done: Sequence[str]) -> list[tuple[str, str]]:
    """Changes of a loop over data: it shows the metrics, also in lines of their own (``verbose=2``)."""
    bars = [
        (
            f"Progbar(target={target})",
            f"Progbar(target={target}, unit_name='{unit}', verbose=verbose, stateful_metrics=model.metrics_names[1:])",
        )
        for target, unit in targets
    ]
    shown = "[(name, batch_logs[name]) for name in model.metrics_names if name in batch_logs]"
    updates = [(f"progbar.update({count})", f"progbar.update({count}, {shown})") for count in done]
    return [*bars, *updates, ("if verbose == 1:", "if verbose:")]


# Module of Keras -> what of its text is changed, as in `library`.
CHANGES: dict[str, list[tuple[str, str]]] = {
    "engine.training": [
        ("updates = self.updates + training_updates", "updates = _for_inputs(self, 'updates') + training_updates"),
        (  # a model's step takes two names in TensorFlow, so that those of the slots of the next model are equal
            "                # Gets loss and metrics. Updates weights at each call.\n",
            "            with K.name_scope('training'):\n",
        ),
        ("for loss_tensor in self.losses:", "for loss_tensor in _for_inputs(self, 'losses'):"),
        (
            "feed_sample_weight_modes = [None for _ in self.outputs]",
            "feed_sample_weight_modes = self._feed_sample_weight_modes",
        ),
        (
            "loss_weights=self.loss_weights,\n                             target_tensors=target_tensors)",
            "loss_weights=self.loss_weights, sample_weight_mode=self.sample_weight_mode,\n"
            "                             target_tensors=target_tensors)",
        ),
        ("            warnings.warn(UserWarning(", "            _warn(str("),
        # A model that was called, or built, has no inputs yet.
        ("        if not self.built:\n", "        if not self.built or not self.inputs:\n"),
        (
            "                raise ValueError('Please do not pass a dictionary '\n"
            "                                 'as model inputs.')\n",
            "                all_inputs += [x[name] for name in sorted(x)]\n",
        ),
        (
            "            if isinstance(x, (list, tuple)):\n                if not all(isinstance(v, np.ndarray) or\n",
            "            x = _as_arrays(x)\n"
            "            if isinstance(x, (list, tuple)):\n                if not all(isinstance(v, np.ndarray) or\n",
        ),
        ("'You must compile a model before '", "'You must compile your model before '"),
        (  # targets may have another shape than the output, with which a loss computes as it likes
            "                y,\n                feed_output_names,\n                feed_output_shapes,\n",
            "                y,\n                feed_output_names,\n                None,\n",
        ),
        (
            "                exception_prefix='target')\n\n            # Generate sample-wise",
            "                exception_prefix='target')\n            y = _with_last_axis(y, self._feed_targets)\n\n"
            "            # Generate sample-wise",
        ),
        (
            "            if self._is_graph_network:\n                # Additional checks",
            "            if self._is_graph_network and not getattr(self, '_reads_data', False):\n"
            "                # Additional checks",
        ),
        (
            "        masks = self.compute_mask(self.inputs, mask=None)\n",
            "        masks = [getattr(output, '_keras_mask', None) for output in self.outputs]\n",
        ),
        (
            "        elif validation_steps:\n            do_validation = True\n"
            "            if self._uses_dynamic_learning_phase():\n                val_inputs = [0]\n",
            "        elif validation_steps:\n"
            "            raise ValueError('`validation_steps` should not be specified'\n"
            "                             ' if `validation_data` is None.')\n",
        ),
        *(
            (
                f"            {name} = x + y + sample_weights + [1]\n        else:\n"
                f"            {name} = x + y + sample_weights\n",
                f"            {name} = _fed(self, x, y, sample_weights, True) + [1]\n        else:\n"
                f"            {name} = _fed(self, x, y, sample_weights, True)\n",
            )
            for name in ("ins", "fit_inputs")
        ),
        ("x + y + sample_weights", "_fed(self, x, y, sample_weights, False)"),
        ("    def train_on_batch(self, x, y,\n", "    def train_on_batch(self, x, y=None,\n"),
        ("    def test_on_batch(self, x, y, sample", "    def test_on_batch(self, x, y=None, sample"),
    ],
    "utils.generic_utils": [  # lines and bars of progress
        ("                 stateful_metrics=None):\n", "                 stateful_metrics=None, unit_name='step'):\n"),
        ("        self.target = target\n", "        self.target, self.unit_name = target, unit_name\n"),
        ("'ipykernel' in sys.modules)", "'posix' in sys.modules)"),
        ("/step' %", "/step'.replace('step', self.unit_name) %"),
        (
            "            if self.target is None or current >= self.target:\n",
            "            if self.target is not None and current >= self.target:\n"
            "                info = '%d/%d' % (current, self.target) + info\n",
        ),
    ],
    "engine.training_generator": [
        # Each validation begins with the first batch of a `Sequence`.
        ("if val_gen and workers > 0:", "if val_gen and workers > 0 and not val_use_sequence_api:"),
        (
            f"val_enqueuer_gen,\n{' ' * 28}validation_steps,\n{' ' * 28}callbacks=callbacks,\n{' ' * 28}workers=0)",
            "validation_data if val_use_sequence_api else val_enqueuer_gen, validation_steps, callbacks=callbacks,\n"
            f"{' ' * 28}max_queue_size=max_queue_size, workers=workers if val_use_sequence_api else 0,\n"
            f"{' ' * 28}use_multiprocessing=use_multiprocessing)",
        ),
        *_lines(("steps", "step"), done=["steps_done"]),
        (
            "                        do_validation and\n",
            "                        do_validation and not callbacks.model.stop_training and\n",
        ),
        ("'a tuple `(x, y, sample_weight)` '", "'a tuple of 1 or 2 or 3 elements: `(x, y, sample_weight)` '"),
        ("Output of generator should be a tuple '", "Output of generator should be a tuple of 1 or 2 or 3 elements: '"),
        (
            " " * 16 + _NEXT,
            _NEXT_OR_END.format(
                indent=" " * 16,
                counted="'steps_per_epoch * epochs', steps_per_epoch * epochs",
                ending="callbacks.model.stop_training = True",
            ),
        ),
        (
            "\n" + " " * 12 + _NEXT,
            "\n" + _NEXT_OR_END.format(indent=" " * 12, counted="'steps', steps", ending="steps = _some(steps_done)"),
        ),
    ],
    "engine.network": [
        (
            "        if dtype is None:\n            dtype = K.floatx()\n        self.dtype = dtype\n",
            "        _set_dtype(self, dtype or K.floatx(), {} if autocast is None else {'autocast': autocast})\n"
            "        self._has_default_dtype = dtype is None\n",
        ),
        ("layer.compute_mask(", "_mask_behind(layer, "),
        (
            "output_masks=[None for _ in self.outputs]",
            "output_masks=[getattr(x, '_keras_mask', None) for x in self.outputs]",
        ),
        # A model does not know which of its ops ask for the phase, so each step gets it.
        ("        return any([x._uses_learning_phase for x in self.outputs])\n", "        return True\n"),
        ("[x._uses_learning_phase for x in computed_tensors]", "[True]"),
    ],
    "engine.sequential": [
        (
            "        if self.inputs:\n            self.build()\n        else:",
            "        if _continues(self):\n            self.build()\n"
            "        else:\n            self.built = bool(self.inputs)",
        ),
        (
            "        if not self.layers:\n            self.outputs = None",
            "        if not self.layers or not self._is_graph_network:\n            self.outputs = None",
        ),
        (
            "        if layers:\n            for layer in layers:\n",
            "        if layers is not None:\n"
            "            for layer in layers if isinstance(layers, (list, tuple)) else [layers]:\n",
        ),
        (
            "        if not isinstance(layer, Layer):\n            raise",
            "        layer = _layer_behind(layer)\n        if not isinstance(layer, Layer):\n            raise",
        ),
    ],
    "callbacks.callbacks": [
        (
            "            print('Epoch %d/%d' % (epoch + 1, self.epochs))\n",
            "            if self.epochs > 1:\n                print('Epoch %d/%d' % (epoch + 1, self.epochs))\n",
        ),
        (
            f"\n{' ' * 35}stateful_metrics=self.stateful_metrics)",
            f"\n{' ' * 35}stateful_metrics=self.stateful_metrics,\n"
            f"{' ' * 35}unit_name='step' if self.use_steps else 'sample')",
        ),
        ("warnings.warn(", "_warn("),
        # Else NumPy 2 sums float32, which json does not write; then it was float64.
        ("self.totals[k] += v * batch_size", "self.totals[k] += float(v) * batch_size"),
        ("self.totals[k] = v * batch_size", "self.totals[k] = float(v) * batch_size"),
        (  # what came of the validation data stands behind what came of the training
            "                        logs[k] = self.totals[k] / self.seen\n",
            "                        logs[k] = self.totals[k] / self.seen\n"
            "            for k in [k for k in logs if k.startswith('val_')]:\n"
            "                logs[k] = logs.pop(k)\n",
        ),
    ],
    "engine.training_arrays": [
        *_lines(("steps", "step"), ("num_samples", "sample"), done=["step + 1", "batch_end"]),
        (
            "        if (verbose and fit_inputs and\n"
            "           hasattr(fit_inputs[0], 'shape') and hasattr(val_inputs[0], 'shape')):\n"
            "            print('Train on %d samples, validate on %d samples' %\n"
            "                  (fit_inputs[0].shape[0], val_inputs[0].shape[0]))\n",
            "",
        ),
        (
            "steps_name='steps_per_epoch')\n    if num",
            "steps_name='steps_per_epoch')\n    if verbose:\n"
            "        _tell_samples(num_train_samples or steps_per_epoch, val_inputs)\n    if num",
        ),
        (  # `fit` shuffles what it validates with, too: partial batches and NumPy's random numbers depend on it
            "def test_loop(model, f, ins,\n              batch_size=None,\n",
            "def test_loop(model, f, ins,\n              batch_size=None, shuffle=False,\n",
        ),
        (
            "        index_array = np.arange(num_samples)\n"
            "        for batch_index, (batch_start, batch_end) in enumerate(batches):\n"
            "            batch_ids = index_array[batch_start:batch_end]\n            if isinstance(ins[-1], int):\n",
            "        index_array = np.random.permutation(num_samples) if shuffle else np.arange(num_samples)\n"
            "        for batch_index, (batch_start, batch_end) in enumerate(batches):\n"
            "            batch_ids = index_array[batch_start:batch_end]\n            if isinstance(ins[-1], int):\n",
        ),
        (
            f"callbacks=callbacks,\n{' ' * 41}verbose=0)\n{' ' * 20}val_outs",
            f"callbacks=callbacks, shuffle=True,\n{' ' * 41}verbose=0)\n{' ' * 20}val_outs",
        ),
        (  # the order of an epoch does not go on from that of the one before
            "            if shuffle == 'batch':\n                index_array = batch",
            "            index_array = np.arange(num_train_samples)\n"
            "            if shuffle == 'batch':\n                index_array = batch",
        ),
        # Arrays to validate with have batches beside training that has steps.
        (
            "        if steps_per_epoch:\n            raise ValueError('Must specify `validation_steps`",
            "        if steps_per_epoch and not model._validation_batch_size:\n"
            "            raise ValueError('Must specify `validation_steps`",
        ),
        (
            f"steps=validation_steps,\n{' ' * 37}callbacks=callbacks,\n",
            "steps=validation_steps, batch_size=model._validation_batch_size, shuffle=True, callbacks=callbacks,\n",
        ),
        # An end that a callback asks for comes before the validation, which would begin anew.
        ("if batch_index == len(batches) - 1:", "if not callback_model.stop_training:"),
        (
            "            if do_validation and should_run",
            "            if do_validation and not callback_model.stop_training and should_run",
        ),
        (  # losses of steps are added, metrics keep their own state
            "                        outs[i] = float(batch_out)\n                    else:\n"
            "                        outs[i] += float(batch_out)\n",
            "                        outs[i] += float(batch_out)\n                    else:\n"
            "                        outs[i] = float(batch_out)\n",
        ),
        (
            "                outs[i][batch_start:batch_end] = batch_out\n",
            "                _check_batch(batch_out, batch_end - batch_start)\n"
            "                outs[i][batch_start:batch_end] = batch_out\n",
        ),
    ],
    "engine.training_utils": [
        ("layer.__class__.__name__ == 'Sequential'", "_is_sequence(layer)"),
        ("layer._batch_input_shape, layer.dtype", "layer.batch_input_shape, layer.dtype"),
        ("hasattr(layer, '_batch_input_shape')", "hasattr(layer, 'batch_input_shape')"),
        (
            "    weight = K.placeholder(\n        shape=shape,\n        name=output_name + '_sample_weights')\n",
            "    weight = _weights_placeholder(shape, output_name + '_sample_weights')\n",
        ),
        ("        if shape is None or shape[0] is None:\n", "        if False:\n"),
        # A tuple is a list, and inputs beyond those of the model are dropped.
        ("isinstance(data, list)", "isinstance(data, (list, tuple))"),
        ("isinstance(x_weight, list)", "isinstance(x_weight, (list, tuple))"),
        ("isinstance(data[0], list)", "isinstance(data[0], (list, tuple))"),
        (
            "    if len(data) != len(names):\n",
            "    data = data[:len(names)] if exception_prefix == 'input' else data\n    if len(data) != len(names):\n",
        ),
        (  # vectors become columns, tensors too
            "        return x\n    elif x.ndim == 1:\n",
            "        return K.expand_dims(x, 1) if K.ndim(x) == 1 else x\n"
            "    elif not hasattr(x, 'ndim'):\n"
            "        raise ValueError('Data must be arrays or tensors, not %r.' % (x,))\n"
            "    elif x.ndim == 1:\n",
        ),
        ("        if y is None or loss is None:\n", "        if y is None or loss is None or K.is_tensor(y):\n"),
        (
            "set([0 if y is None else int(y.shape[0]) for y in x])",
            "set(0 if y is None else int(y.shape[0]) for y in x if not K.is_tensor(y))",
        ),
        ("np.ones((y.shape[0],), dtype=K.floatx())", "_unit_weights(y, 1)"),
        ("np.ones((y.shape[0], y.shape[1]), dtype=K.floatx())", "_unit_weights(y, 2)"),
        (
            "        x_weights = []\n        for name in output_names:\n",
            "        generic_utils.check_for_unexpected_keys(weight_type, x_weight, output_names)\n"
            "        x_weights = []\n        for name in output_names:\n",
        ),
        (
            "        unknown_output = set(sample_weight_mode.keys()) - set(output_names)\n        if unknown_output:\n",
            "        generic_utils.check_for_unexpected_keys('sample_weight_mode', sample_weight_mode, output_names)\n"
            "        if False:\n",
        ),
        (
            "                warnings.warn(\n                    'Output {0} missing",
            "                _warn(\n                    'Output {0} missing",
        ),
    ],
}  # fmt: skip


# ---- What the changed lines call -------------------------------------------------------------------------------------


def warn(message: str, category: object = None) -> None:
    """Warns by ``tf.logging``, as TensorFlow's Keras does, whatever the category."""
    state.tf_logging().warning(message)


def _next_batch(batches: Any, name: str, count: int) -> Any:
    """The next batch; None at the end of the data, which is before its time and told."""
    found = next(batches, None)
    if found is None:
        warn(
            "Your dataset ran out of data; interrupting training. Make sure that your dataset can generate at least"
            f" `{name}` batches (in this case, {count} batches). You may need to use the repeat() function when"
            " building your dataset."
        )
    return found


def _some(steps: int) -> int:
    """The number of steps; raises ValueError if there were none."""
    if not steps:
        raise ValueError("The data have no batch. Expect x to be a non-empty array, generator or dataset.")
    return steps


def _tell_samples(count: int, validation: Any) -> None:
    sizes = [x.shape[0] for x in validation or () if isinstance(x, np.ndarray) and x.ndim]
    print(f"Train on {count} samples" + (f", validate on {sizes[0]} samples" if sizes else ""))


def _check_batch(made: Any, examples: int) -> None:
    """Raises ValueError if an output has other examples than the batch that it is made of."""
    if made.shape[0] != examples:
        raise ValueError(
            "Mismatch between expected batch size and model output batch size. Output shape ="
            f" {made.shape}, expected output shape = shape {(examples, *made.shape[1:])}"
        )


def _unit_weights(target: Any, axes: int) -> Any:
    """A weight of 1 for each example of a target (``axes`` 1) or each of its steps (2)."""
    floatx = state.library_root().backend.floatx()
    if isinstance(target, Tensor):
        return ones(shape_of(target)[:axes], floatx)
    return np.ones(target.shape[:axes], floatx)


def _fed(model: Any, x: list[Any], y: list[Any], weights: list[Any], is_training: bool) -> list[Any]:
    """The values of a model's inputs, targets and weights; training without targets has ones, as in TensorFlow 1.15.

    Raises:
      InvalidArgumentError: targets are missing: of several outputs, or not for training.
    """
    if y or not getattr(model, "_feed_targets", None):
        return [*x, *y, *weights]
    target = model._feed_targets[-1]
    if not is_training or len(model._feed_targets) > 1:
        raise errors.InvalidArgumentError.of(
            f"You must feed a value for placeholder tensor {target.op.name!r} with dtype {target.dtype.name}"
        )
    warn(f"The model {model.name!r} is trained without targets, which are ones then.")
    examples = x[0].shape[0] if x and isinstance(x[0], np.ndarray) else 1
    made = [*model._feed_targets, *model._feed_sample_weights]
    return [*x, *(np.ones([examples] + [1] * ((one.shape.ndims or 1) - 1), one.dtype.as_numpy_dtype) for one in made)]


def _weights_placeholder(shape: list[None], name: str) -> Tensor:
    """The weights of examples, or of their steps, which are 1 unless they are fed."""
    return placeholder_with_default(ones([1] * len(shape), state.library_root().backend.floatx()), shape, name)


def _as_arrays(x: Any) -> Any:
    """Data of which a subclassed model is made: numbers in lists are arrays, and each example has a dimension."""
    if isinstance(x, list) and x and isinstance(x[0], (int, float)):
        x = np.asarray(x)
    expand = lambda part: part[:, None] if isinstance(part, np.ndarray) and part.ndim == 1 else part  # noqa: E731
    return [expand(part) for part in x] if isinstance(x, (list, tuple)) else expand(x)


def _layer_behind(layer: Any) -> Any:
    """What is added to a sequence: of an `Input`, its layer.

    Raises:
      TypeError: a layer of ``tf.layers``.
    """
    if isinstance(layer, TfLayer):
        raise TypeError(f"Models of tf.keras cannot use legacy tf.layers.Layers:\n  {layer}\nuse tf.keras.layers.")
    history = getattr(layer, "_keras_history", None) if isinstance(layer, (Tensor, SparseTensor)) else None
    return layer if history is None else history[0]


def _continues(sequence: Any) -> bool:
    """Whether a sequence, to which a layer is being added, is a model of inputs and outputs."""
    return bool(sequence.inputs) and (sequence._is_graph_network or not sequence._layers)


def _with_last_axis(arrays: list[Any], targets: list[Any]) -> list[Any]:
    """Targets as the placeholders are shaped: class numbers may come without an axis for the class."""
    return [
        x[..., None]
        if isinstance(x, np.ndarray) and isinstance(target, Tensor) and x.ndim + 1 == target.shape.ndims
        else x
        for x, target in zip(arrays, targets)
    ]


HELPERS: dict[str, Any] = {
    "_set_dtype": op_layers.set_dtype,
    "_tell_samples": _tell_samples,
    "_is_sequence": lambda layer: isinstance(layer, state.library_root().Sequential),
    "_with_last_axis": _with_last_axis, "_layer_behind": _layer_behind, "_weights_placeholder": _weights_placeholder,
    "_continues": _continues, "_warn": warn, "_next_batch": _next_batch, "_check_batch": _check_batch,
    "_unit_weights": _unit_weights, "_as_arrays": _as_arrays, "_some": _some,
    "_for_inputs": lambda model, kind: _for_inputs(model, kind), "_fed": _fed,
}  # fmt: skip


# ---- What is more than a line ----------------------------------------------------------------------------------------


def apply(root: ModuleType) -> None:
    """Changes the layers' ``add_loss`` and ``add_metric``, and what models are made of when data come first."""
    layer, model = root.engine.base_layer.Layer, root.engine.training.Model
    layer.add_metric = _add_metric(root, layer.add_metric)
    layer.add_loss, layer.add_update = _add_loss(root), _add_update(root)
    for kind in ("losses", "updates"):
        setattr(
            layer, f"get_{kind}_for", _added_for(kind, f"_unconditional_{'loss' if kind == 'losses' else 'update'}")
        )
    for cls in descendants(layer):  # all find them as `Layer` does
        kept = () if cls is root.engine.network.Network else ("losses", "updates")
        for name in {"losses", "updates", "get_losses_for", "get_updates_for"}.difference(kept).intersection(vars(cls)):
            delattr(cls, name)
    root.engine.training_utils.ModelInputs = ModelInputs
    model._set_inputs = set_inputs
    network = root.engine.network.Network
    network._init_graph_network = _takes_structures(network._init_graph_network)
    model.build = build_model
    model.compile = _counted(model.compile)
    sequence = root.Sequential
    sequence.build = build_sequence(sequence.build)
    sequence.get_config = config_with_shape(sequence.get_config)
    network.__call__ = _called_on_structures(network.__call__, {model.build, sequence.build})
    model.metrics = property(functools.partial(_metrics, root.engine.training._get_metrics_from_layers))
    model.metrics_names = property(_metrics_names)
    model._loss_weights_list = property(lambda self: self.loss_weights_list)


def _counted(compile: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(compile)
    def counted_compile(self: Any, *args: Any, **kwargs: Any) -> None:
        compile(self, *args, **kwargs)
        if self.inputs and self.built:
            counted_ops.count_compile(self)

    return counted_compile


def descendants(cls: Any) -> Iterator[Any]:
    """All classes below a class."""
    for below in cls.__subclasses__():
        yield below
        yield from descendants(below)


def _add_metric(root: ModuleType, add: Callable[..., None]) -> Callable[..., None]:
    def add_metric(self: Any, value: Any, aggregation: str | None = None, name: str | None = None) -> None:
        """Adds a metric: the result of a `Metric`, or a tensor whose mean over the batches is the metric.

        Raises:
          ValueError: another aggregation than the mean, or neither a metric nor an aggregation, or no name.
        """
        metric = getattr(value, "_metric_obj", None)
        if aggregation not in (None, "mean"):
            raise ValueError(f"We currently support only `mean` sample-wise metric aggregation, not {aggregation!r}.")
        if metric is None and aggregation is None:
            raise ValueError(
                "An aggregated result needs its metric, which is reset after every epoch: give the result of a"
                " tf.keras.metrics.Metric, or a tensor with aggregation='mean'. We do not support adding an aggregated"
                " metric result tensor that is not the output of a `tf.keras.metrics.Metric` metric instance."
            )
        if metric is None and name is None:
            raise ValueError("Please provide a name for your metric like `self.add_metric(x, name='activation')`.")
        if metric is not None and getattr(self, "_is_graph_network", False):
            raise ValueError(
                "Using the result of calling a `Metric` object when calling `add_metric` on a functional model is not"
                " supported: pass the tensor, with aggregation='mean'."
            )
        if metric is not None or not op_layers.add_layer(root, self, root.layers.AddMetric(aggregation, name), value):
            add(self, value, name if metric is None else metric.name)

    return add_metric


def _add_loss(root: ModuleType) -> Callable[..., None]:
    def add_loss(self: Any, losses: Any, inputs: Any = None) -> None:
        """Adds losses: tensors, numbers, or functions that make them.

        Args:
          inputs: whether they depend on the inputs of the layer, which may be called on several: None if not.
        """
        for given in nest.flatten(losses):
            loss: Any = given() if callable(given) else given
            if loss is None:
                continue
            loss = loss if isinstance(loss, Tensor) else root.backend.constant(loss)
            if not op_layers.add_layer(root, self, root.layers.AddLoss(unconditional=False), loss):
                loss._unconditional_loss = inputs is None
                self._losses.append(loss)

    return add_loss


def _add_update(root: ModuleType) -> Callable[..., None]:
    def add_update(self: Any, updates: Any, inputs: object = None) -> None:
        """Adds updates that a step of training runs: ops, tensors, or functions that make them.

        Args:
          inputs: not used; an update depends on the layer's inputs if it is computed from them.
        """
        calls = op_layers.calls_inputs()
        relevant = [node.input_tensors for node in self._inbound_nodes] if calls is None else calls
        for update in updates if isinstance(updates, list) else [updates]:
            update = update() if callable(update) else update
            if update is not None:
                update = root.backend.update(*update) if isinstance(update, tuple) else update
                op = _op(update if hasattr(update, "graph") else convert_to_tensor(update))
                op._unconditional_update = not _depending(relevant, [op])
                self._updates.append(op)

    return add_update


def _op(x: Any) -> Any:
    return getattr(x, "op", x)


def _needed(op: Any) -> list[Any]:
    return [*(x.op for x in op.inputs), *op.control_inputs]


def _depending(inputs: Any, targets: list[Any]) -> list[Any]:
    """Those of the targets, tensors or ops, that depend on inputs."""
    sources = {_op(x) for x in nest.flatten(inputs)}
    before = list(traverse(map(_op, targets), lambda op: () if op in sources else _needed(op)))
    consumers: dict[Any, list[Any]] = {}
    for op in before:
        for source in _needed(op):
            consumers.setdefault(source, []).append(op)
    found = set(traverse((op for op in before if op in sources), lambda op: consumers.get(op, ())))
    return [x for x in targets if _op(x) in found]


def _added_for(kind: str, unconditional: str) -> Callable[..., list[Any]]:
    def added_for(self: Any, inputs: Any = None) -> list[Any]:
        """Those of the losses or updates that depend on inputs, or for None those that depend on none."""
        if inputs is None:
            return [x for x in getattr(self, kind) if getattr(x, unconditional)]
        return _depending(inputs, [x for x in getattr(self, kind) if not getattr(x, unconditional)])

    return added_for


def _for_inputs(model: Any, kind: str) -> list[Any]:
    """The losses or updates of a model's steps: those that depend on its inputs, or on none."""
    find = getattr(model, f"get_{kind}_for")
    now = [(layer, layer.trainable) for layer, _ in model._trained_at_compile]
    try:
        for layer, trains in model._trained_at_compile:
            vars(layer)["_trainable"] = trains
        return [*find(None), *find(model.inputs)]
    finally:
        for layer, trains in now:
            vars(layer)["_trainable"] = trains


def _metrics(of_layers: Callable[..., list[Any]], model: Any) -> list[Any]:
    """The metrics of `compile`, and those that layers and the model have added."""
    compiled = model._compile_metric_functions if model._is_compiled else []
    own, below = model._metrics, of_layers(tracking.layers_of(model))
    return [*compiled, *below, *own] if model._is_graph_network else [*compiled, *own, *below]


def _metrics_names(model: Any) -> list[str]:
    """The names of what a step of training or evaluation returns, in its order."""
    skipped = model.skip_target_indices if model._is_compiled and len(model.outputs) > 1 else ()
    several = model.output_names if model._is_compiled and len(model.outputs) > 1 else ()
    losses = [f"{name}_loss" for i, name in enumerate(several) if i not in skipped]
    return ["loss", *losses, *(metric.name for metric in model.metrics)]


def _takes_structures(init: Callable[..., None]) -> Callable[..., None]:
    """An ``__init__`` of a model of inputs and outputs, which may be in structures (of dictionaries by keys)."""

    @functools.wraps(init)
    def init_graph_network(self: Any, inputs: Any, outputs: Any, *args: Any, **kwargs: Any) -> None:
        refused = {"dtype", "dynamic", "autocast"} & set(kwargs)
        if refused:
            raise TypeError(f"A model of inputs and outputs got an unexpected argument: {sorted(refused)}")
        sizes = {x.raw_shape[0] for x in nest.flatten(inputs) if isinstance(x, Tensor) and x.raw_shape} - {None}
        if len(sizes) > 1:
            raise ValueError(
                "The specified batch sizes of the Input Layers are incompatible. Found batch sizes:"
                f" {sorted(sizes, key=str)}"
            )
        self._structured_inputs = inputs if isinstance(inputs, dict) else None
        self._structured_outputs = outputs if _is_nested(outputs) else None
        flat = [nest.flatten(x) if isinstance(x, (dict, list, tuple)) else x for x in (inputs, outputs)]
        init(self, *flat, *args, **kwargs)
        self._autocast = False  # its layers cast

    return init_graph_network


def _is_nested(outputs: Any) -> bool:
    """Whether the outputs of a model are more than a tensor or a list of tensors."""
    if isinstance(outputs, list):
        return any(isinstance(x, (dict, list, tuple)) for x in outputs)
    return isinstance(outputs, (dict, tuple))


def _called_on_structures(call: Callable[..., Any], builds: set[Callable[..., None]]) -> Callable[..., Any]:
    @functools.wraps(call)
    def call_on_structures(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._is_graph_network:
            self.built = self.built or type(self).build in builds  # the call itself makes the variables
            made = call(self, inputs, *args, **kwargs)
            saving.restore_made(self)
            return made
        made = call(self, nest.flatten(inputs) if isinstance(inputs, dict) else inputs, *args, **kwargs)
        structure = getattr(self, "_structured_outputs", None)
        return made if structure is None else nest.pack_sequence_as(structure, nest.flatten(made))

    return call_on_structures
