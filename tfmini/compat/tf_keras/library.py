"""Loads the installed Keras 2.3 as ``tf.keras``: a copy of its own, with changes.

A program may use ``keras`` and ``tf.keras`` beside each other, as with TensorFlow, and may have another Keras than 2.3
as ``keras`` in the process; so the files of the installed library are run again, as `tfmini.compat.tf_keras.keras`.
On the way to Python, their text is changed in places (`_EVERYWHERE`, `_IN`, `training.CHANGES`): where it names
TensorFlow or what Python and numpy have dropped, and where TensorFlow's ``tf.keras`` does otherwise. `changes` does
what needs more code.
"""

from __future__ import annotations

import re
from types import ModuleType

from tfmini.compat.library_copy import installed_folder, load
from tfmini.compat.tf_keras import training
from tfmini.compat.tf_keras.state import LIBRARY as NAME

REMEDY = "pip install 'tfmini-cluster[keras]'"

# What tfmini is for TensorFlow, and what Python and numpy have dropped since Keras 2.3.
_EVERYWHERE = [
    (r"(?m)^(\s*)import tensorflow as tf$", r"\1import tfmini as tf"),
    (r"(?m)^(\s*)from tensorflow(?=[. ])", r"\1from tfmini"),
    (r"(?m)^(\s*)from keras(?=[. ])", rf"\1from {NAME}"),
    (r"from distutils\.version", "from tfmini.compat.old_python.dropped_modules"),
    (r"from collections import Iterable\b", "from collections.abc import Iterable"),
    (r"\bcollections\.(Mapping|Sequence|Iterable|Callable)\b", r"collections.abc.\1"),
    (r"\binspect\.getargspec\b", "inspect.getfullargspec"),
    (r"\bnp\.Inf\b", "np.inf"),
    (r"\bnp\.string_", "np.bytes_"),
    (r"\bnp\.unicode_", "np.str_"),
    (r"\bnp\.(bool|int)\b", r"\1"),
]
# Losses of (targets, predictions) that compute in the type of the predictions.
_CASTING = (
    "mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_logarithmic_error",
    "squared_hinge", "hinge", "categorical_hinge", "logcosh", "huber_loss", "kullback_leibler_divergence", "poisson",
    "cosine_proximity",
)  # fmt: skip
_COMPUTED = ("computed_tensor", "computed_tensors")  # the inputs of a layer of a model that is called
_IN: dict[str, list[tuple[str, str]]] = {
    "backend.load_backend": [
        ("    _BACKEND = _backend\n", "    pass\n"),  # tf.keras has one backend
        ("if not os.path.exists(_keras_dir):", "if False:"),  # leaves no files behind
        ("if not os.path.exists(_config_path):", "if False:"),
        ("    sys.stderr.write('Using TensorFlow backend.\\n')\n", ""),
    ],
    "backend.tensorflow_backend": [
        (
            "tf_image_ops.resize_bilinear(x, new_shape)",
            "tf_image_ops.resize_bilinear(x, new_shape, half_pixel_centers=True)",
        ),
        (
            "        return x.eval(session=get_session())\n",
            "        return x.eval(session=get_session()) if is_tensor(x) else x\n",
        ),
        (  # an update is one op
            "    return tf.control_dependencies(control_inputs)\n",
            "    several = isinstance(control_inputs, (list, tuple))\n"
            "    return tf.control_dependencies(control_inputs if several else [control_inputs])\n",
        ),
        (  # also what a program has registered, such as a distribution that stands for a sample
            "isinstance(x, tf_ops._TensorLike) or",
            "tf_keras_backend.is_symbolic_tensor(x) or isinstance(x, tf_ops._TensorLike) or",
        ),
        ("        strides = (1,) + strides + (1,)\n", "        strides = (1,) + _strides_of(x, strides) + (1,)\n"),
        ("        strides = (1, 1) + strides\n", "        strides = (1, 1) + _strides_of(x, strides)\n"),
        (
            "    return tf.nn.batch_normalization(x, mean, var, beta, gamma, epsilon)\n",
            "    mean, var, beta, gamma = [_along(part, axis, ndim(x)) for part in (mean, var, beta, gamma)]\n"
            "    return tf.nn.batch_normalization(x, mean, var, beta, gamma, epsilon)\n",
        ),
        ("device.device_type.lower() == device_type", "_device_type(device) == device_type"),
        (
            "        v1_variable_initialization()\n",
            "        _track_all_variables()\n",
        ),  # without a session for each function
        ("        dtype = floatx()\n    return tf.zeros_like(", "        pass\n    return tf.zeros_like("),
        ("        dtype = floatx()\n    return tf.ones_like(", "        pass\n    return tf.ones_like("),
    ],
    "engine.saving": [
        ("model._make_train_function()", "_make_optimizer_weights(model)"),
        ("n.decode('utf8') for n in", "_as_text(n) for n in"),
        (
            "        new_weights = []\n        # trainable weights\n",
            "        return _nested_weights(\n            lambda one, values: preprocess_weights_for_loading(\n"
            "                one, values, original_keras_version, original_backend), layer, weights)\n",
        ),
        # In files those that are trained come first, also of a model in a model.
        ("weights = layer.weights\n", "weights = layer.trainable_weights + layer.non_trainable_weights\n"),
    ],
    "layers.cudnn_recurrent": [
        *(
            (
                "        from tfmini.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops\n"
                f"        self._cudnn_{kind.lower()} = cudnn_rnn_ops.Cudnn{kind}(\n"
                "            num_layers=1,\n            num_units=self.units,\n            input_size=input_dim,\n"
                "            input_mode='linear_input')\n",
                f"        self._cudnn_{kind.lower()} = _needs_a_gpu(self)\n",
            )
            for kind in ("GRU", "LSTM")
        )
    ],
    "engine.base_layer": [
        (  # an error must not leave all later layers of the thread without their weights
            "        prev_value = _DISABLE_TRACKING.value\n        _DISABLE_TRACKING.value = True\n"
            "        out = func(*args, **kwargs)\n        _DISABLE_TRACKING.value = prev_value\n        return out\n",
            "        prev_value = getattr(_DISABLE_TRACKING, 'value', False)\n        _DISABLE_TRACKING.value = True\n"
            "        try:\n            return func(*args, **kwargs)\n"
            "        finally:\n            _DISABLE_TRACKING.value = prev_value\n",
        ),
        (
            "name = _to_snake_case(prefix) + '_' + str(K.get_uid(prefix))",
            "name = _unique_name(_to_snake_case(prefix))",
        ),
        ("print('tracking', value, name)", "pass"),
        ("self.__class__.__name__ == 'Sequential'", "_is_sequence(self)"),
        # Tensors that come of no layer make no node; in a graph without Inputs an op between layers is no layer.
        ("        Node(\n", "        (Node if None not in inbound_layers else _no_node)(\n"),
        (
            "            output_tensors[i]._keras_history = (self,\n",
            "            if None not in inbound_layers: output_tensors[i]._keras_history = (self,\n",
        ),
        ("getattr(self, '_layers', [])", "_layers_of(self)"),
        (
            "            else:\n                raise RuntimeError('You tried to call `count_params`",
            "            if not self.built:\n                raise ValueError('You tried to call `count_params`",
        ),
        ("self._trainable_weights[:]", "_own_weights(self, '_trainable_weights')"),
        ("self._non_trainable_weights[:]", "_own_weights(self, '_non_trainable_weights')"),
        (
            "                if isinstance(value, Layer):\n",
            "                if isinstance(value, Layer) and _takes_layers(self):\n",
        ),
        (
            "                          'trainable',\n",
            "                          'trainable', 'dynamic', 'autocast', 'activity_regularizer',\n",
        ),
        (
            "        self.trainable = kwargs.get('trainable', True)\n",
            "        self._trainable = kwargs.get('trainable', True)\n"
            "        self._dynamic = kwargs.get('dynamic', False)\n"
            "        if 'activity_regularizer' in kwargs:\n"
            "            self.activity_regularizer = kwargs['activity_regularizer']\n",
        ),
        ("    def __call__(self, inputs, **kwargs):\n", "    def __call__(self, inputs, *args, **kwargs):\n"),
        (
            "        if isinstance(inputs, list):\n            inputs = inputs[:]\n",
            "        kwargs = _by_name(self, args, kwargs)\n        inputs = _inputs_of(self, inputs, kwargs)\n"
            "        if isinstance(inputs, list):\n            inputs = inputs[:]\n",
        ),
        (
            "        super(Layer, self).__setattr__(name, value)\n",
            "        super(Layer, self).__setattr__(name, _tracked(self, name, value))\n\n"
            "    def __delattr__(self, name):\n        _untracked(self, name)\n",
        ),
        (
            "        if dtype is None:\n            dtype = K.floatx()\n        self.dtype = dtype\n",
            "        _set_dtype(self, dtype, kwargs)\n",
        ),
        (
            "                self.build(unpack_singleton(input_shapes))\n",
            "                _take_dtype(self, inputs)\n                self.build(unpack_singleton(input_shapes))\n",
        ),
        ("output = self.call(inputs, **kwargs)", "output = _call(self, inputs, kwargs)"),
        (
            "self.compute_mask(inputs, previous_mask)",
            "_mask_behind(self, inputs, previous_mask if kwargs.get('mask') is None else kwargs['mask'])",
        ),
        (
            "                              inputs=to_list(inputs))\n        return output\n",
            "                              inputs=to_list(inputs))\n        return _in_structure(self, output)\n",
        ),
        ("            masks.append(None)\n", "            masks.append(getattr(x, '_keras_mask', None))\n"),
        (
            "            self._add_inbound_node(input_tensors=inputs,\n",
            "            _set_masks(output, output_mask)\n            self._add_inbound_node(input_tensors=inputs,\n",
        ),
        *(
            (
                f"if len(self._inbound_nodes) > 1:\n            raise AttributeError('Layer ' + self.name +\n"
                f"                                 ' has multiple inbound nodes, '\n"
                f'                                 \'hence the notion of "layer {kind}"',
                f"if False:\n            raise AttributeError('Layer ' + self.name +\n"
                f"                                 ' has multiple inbound nodes, '\n"
                f'                                 \'hence the notion of "layer {kind}"',
            )
            for kind in ("input", "output")
        ),  # those of the first call
        ("        self.dtype = dtype\n", "        self.dtype = _dtype_name(dtype)\n"),
        ("self.activity_regularizer(x)", "_mean_activity(self, x)"),
        (  # only what comes of layers is copied
            "if id(x) in [id(i) for i in inputs_ls]:",
            "if id(x) in [id(i) for i in inputs_ls] and all(hasattr(i, '_keras_history') for i in inputs_ls):",
        ),
        (
            "output_shape = self.compute_output_shape(input_shape)",
            "output_shape = _output_shape(self, input_shape, output)",
        ),
        (
            "                if isinstance(input_shape, list):\n"
            "                    output_shape = [None for _ in input_shape]\n"
            "                else:\n                    output_shape = None\n",
            "                output_shape = _output_shape(None, input_shape, output)\n",
        ),
    ],
    "engine.training": [
        ("append(list(output.shape))", "append(output.shape.as_list() if output.shape.ndims is not None else None)"),
        ("_get_metrics_from_layers(self._layers)", "_get_metrics_from_layers(_layers_of(self))"),
        ("with K.name_scope(self.optimizer.__class__.__name__):", "if True:"),  # optimizers have a scope of their own
    ],
    "engine.training_generator": [
        (
            "averages = [float(outs_per_batch[-1][0])]",
            "averages = [float(np.mean([outs[0] for outs in outs_per_batch]))]",
        ),
        (  # losses of a data set are means of the steps, whatever their batches; those of a generator, of the examples
            "batch_logs = {'batch': batch_index, 'size': batch_size}",
            "batch_logs = {'batch': batch_index, 'size': 1 if getattr(model, '_reads_data', False) else batch_size}",
        ),
    ],
    "engine.input_layer": [
        ("        self.dtype = dtype\n", "        self.dtype = _dtype_name(dtype)\n"),
        (
            "dtype=None, input_tensor=None, sparse=False, name=None):",
            "dtype=None, input_tensor=None, sparse=False, name=None, ragged=False, **kwargs):\n"
            "        batch_input_shape = _shape_of_input(batch_input_shape, input_shape, batch_size, ragged, kwargs)\n"
            "        input_shape = None if batch_input_shape else input_shape",
        ),
        ("                  'sparse': self.sparse,\n", "                  'sparse': self.sparse, 'ragged': False,\n"),
        ("def Input(shape=None, batch_shape=None,\n", "def Input(shape=None, batch_size=None,\n"),
        ("          tensor=None):\n", "          tensor=None, ragged=False, **kwargs):\n"),
        (
            "    if not batch_shape and tensor is None:\n",
            "    batch_shape = _shape_of_input(kwargs.pop('batch_shape', None), shape, batch_size, ragged, kwargs)\n"
            "    if not batch_shape and tensor is None:\n",
        ),
        ("    if shape is not None and not batch_shape:\n", "    if False:\n"),
    ],
    "models": [
        *(
            (
                f"def _clone_{kind}_model(model, input_tensors=None):",
                f"def _clone_{kind}_model(model, input_tensors=None, layer_fn=None):",
            )
            for kind in ("functional", "sequential")
        ),
        (
            "def clone_model(model, input_tensors=None):",
            "def clone_model(model, input_tensors=None, clone_function=None):",
        ),
        ("(model, input_tensors=input_tensors)", "(model, input_tensors=input_tensors, layer_fn=clone_function)"),
        ("layer.__class__.from_config(layer.get_config())", "_copy_of(layer, layer_fn)"),
        (
            "        return Sequential(layers=layers, name=model.name)\n",
            "        return Sequential(layers=_input_of(model) + layers, name=model.name)\n",
        ),
        (
            "                if node.arguments:\n                    kwargs = node.arguments\n"
            "                else:\n                    kwargs = {}\n",
            "                kwargs = _arguments_now(node, {str(key): value for key, value in tensor_map.items()})\n",
        ),
        (
            "    return Model(input_tensors, output_tensors, name=model.name)\n",
            "    return _with_added(Model(input_tensors, output_tensors, name=model.name), layer_map)\n",
        ),
    ],
    "callbacks.tensorboard_v1": [
        ("def on_train_end(self, _):", "def on_train_end(self, _=None):"),
        (
            "        self.samples_seen_at_last_write = 0\n",
            "        self.samples_seen_at_last_write = self.batches_seen = 0\n",
        ),
        (
            "            self.samples_seen += logs['size']\n",
            "            self.samples_seen += logs.get('size', 1)\n            self.batches_seen += 1\n",
        ),
        ("self._write_logs(logs, self.samples_seen)", "self._write_logs(logs, self.batches_seen - 1, 'batch_')"),
        ("    def _write_logs(self, logs, index):\n", "    def _write_logs(self, logs, index, prefix='epoch_'):\n"),
        ("            summary_value.tag = name\n", "            summary_value.tag = prefix + name\n"),
    ],
    "layers": [("globs['Model'] = models.Model", "globs['Model'], globs['Network'] = models.Model, _network()")],
    "layers.advanced_activations": [
        ("of ReLU layer", "of Relu layer"),
        ("True\n        if max", "False\n        if max"),
    ],
    "layers.core": [
        (
            "        self.dims = tuple(dims)\n",
            "        self.dims = tuple(dims)\n"
            "        if sorted(dims) != list(range(1, len(dims) + 1)):\n"
            "            raise ValueError('Invalid permutation `dims`, not 1 to their number: %s' % (dims,))\n",
        ),
        (
            "    def call(self, inputs, mask=None):\n        arguments = self.arguments\n",
            "    def call(self, inputs, mask=None, training=None):\n"
            "        arguments = _arguments_of(self, mask, training)\n",
        ),
        ("        if has_arg(self.function, 'mask'):\n            arguments['mask'] = mask\n", ""),
        (
            "        return self.function(inputs, **arguments)\n",
            "        return _with_variables(self, inputs, arguments)\n",
        ),
        (
            "            if isinstance(input_shape, list):\n"
            "                num_samples = input_shape[0][0]\n"
            "            else:\n"
            "                num_samples = input_shape[0] if input_shape else None\n"
            "            return (num_samples,) + tuple(self._output_shape)\n",
            "            return _with_batch(self._output_shape, input_shape)\n",
        ),
        (
            "        base_config = super(Lambda, self).get_config()\n",
            "        if callable(self.mask):\n"
            "            config.update(mask=func_dump(self.mask), mask_type='lambda')\n"
            "        base_config = super(Lambda, self).get_config()\n",
        ),
        (
            "        config['output_shape'] = output_shape\n        return cls(**config)\n",
            "        config['output_shape'] = output_shape\n"
            "        if config.pop('mask_type', None):\n"
            "            config['mask'] = func_load(config['mask'], globs=globs)\n"
            "        return cls(**config)\n",
        ),
        (
            "zip(input_shape, self._input_dtypes)]",
            "zip(input_shape, self._input_dtypes or [self.dtype] * len(input_shape))]",
        ),
        (
            "K.placeholder(shape=input_shape, dtype=self._input_dtypes)",
            "K.placeholder(shape=input_shape, dtype=self._input_dtypes or self.dtype)",
        ),
        ("self.input_spec = InputSpec(min_ndim=3)", "self.input_spec = InputSpec(min_ndim=1)"),
        ("        if not all(input_shape[1:]):\n", "        if False:\n"),  # Flatten takes unknown sizes
        ("return (input_shape[0], np.prod(input_shape[1:]))", "return _flat_shape(input_shape)"),
        (
            "        assert len(input_shape) >= 2\n        input_dim",
            "        _check_floating(self)\n        assert len(input_shape) >= 2\n        input_dim",
        ),
        ("output = K.dot(inputs, self.kernel)", "output = K.dot(_as_dtype(inputs, self.kernel.dtype), self.kernel)"),
        ("return K.batch_flatten(inputs)", "return _flattened(inputs)"),
        ("return K.dropout(inputs, self.rate, noise_shape,", "return _dropout(inputs, self.rate, noise_shape,"),
        ("K.in_train_phase(dropped_inputs, inputs,", "K.in_train_phase(dropped_inputs, lambda: K.identity(inputs),"),
    ],
    "layers.convolutional": [
        (
            "        if self.rank == 1:\n            outputs = K.conv1d(",
            "        _note_dilation(self)\n        if self.rank == 1:\n            outputs = K.conv1d(",
        ),
        (
            "            outputs = K.separable_conv1d(\n                inputs,\n",
            "            outputs = K.separable_conv1d(\n                _padded_before(self, inputs),\n",
        ),
        (
            "                strides=self.strides,\n                padding=self.padding,\n"
            "                dilation_rate=self.dilation_rate)\n        if self.rank == 2:\n"
            "            outputs = K.separable",
            "                strides=self.strides,\n"
            "                padding='valid' if self.padding == 'causal' else self.padding,\n"
            "                dilation_rate=self.dilation_rate)\n        if self.rank == 2:\n"
            "            outputs = K.separable",
        ),
    ],
    # Arguments by place mean what they say; Keras takes some for those of its first version.
    "legacy.interfaces": [
        ("    def legacy_support(func):\n", "    def legacy_support(func):\n        return func\n\n")
    ],
    "activations": [
        ("    return activation.__name__\n", "    return _serialized_activation(activation)\n"),
        (
            "    if isinstance(identifier, six.string_types):\n",
            "    if isinstance(identifier, dict):\n        return _layer_of(identifier)\n"
            "    if isinstance(identifier, six.string_types):\n",
        ),
    ],
    "initializers": [
        (
            "if distribution not in {'normal', 'uniform'}:",
            "if distribution not in {'normal', 'uniform', 'truncated_normal', 'untruncated_normal'}:",
        ),
    ],
    "layers.embeddings": [
        (
            "        if 'input_shape' not in kwargs:\n",
            "        kwargs['dtype'] = kwargs.get('dtype') or K.floatx()\n        if 'input_shape' not in kwargs:\n",
        ),
    ],
    "layers.local": [
        (
            "        super(LocallyConnected1D, self).__init__(**kwargs)\n",
            "        self.implementation = kwargs.pop('implementation', 1)\n"
            "        super(LocallyConnected1D, self).__init__(**kwargs)\n",
        ),
        (
            "        super(LocallyConnected2D, self).__init__(**kwargs)\n",
            "        self.implementation = kwargs.pop('implementation', 1)\n"
            "        super(LocallyConnected2D, self).__init__(**kwargs)\n",
        ),
        ("        if self.padding != 'valid':\n", "        if self.padding != 'valid' and self.implementation == 1:\n"),
        (
            "K.local_conv1d(inputs, self.kernel, self.kernel_size, self.strides)",
            "K.local_conv1d(_padded(self, inputs), self.kernel, self.kernel_size, self.strides, self.data_format)",
        ),
        # channels first, which Keras leaves out in one dimension
        (
            "input_dim = input_shape[2]",
            "first = self.data_format == 'channels_first'; input_dim = input_shape[2 - first]",
        ),
        ("axes={2: input_dim}", "axes={2 - first: input_dim}"),
        (
            "output_length(input_shape[1],",
            "output_length(input_shape[2 if self.data_format == 'channels_first' else 1],",
        ),
        (
            "        return (input_shape[0], length, self.filters)\n",
            "        sizes = (length, self.filters)\n"
            "        return (input_shape[0],) + (sizes[::-1] if self.data_format == 'channels_first' else sizes)\n",
        ),
        ("K.bias_add(output, self.bias)", "K.bias_add(output, self.bias, self.data_format)"),
        ("K.local_conv2d(inputs,", "K.local_conv2d(_padded(self, inputs),"),
        (
            "            'padding': self.padding,\n",
            "            'padding': self.padding,\n            'data_format': self.data_format,\n"
            "            'implementation': self.implementation,\n",
        ),
    ],
    "layers.recurrent": [
        ("recurrent_activation='sigmoid'", "recurrent_activation='hard_sigmoid'"),
        ("self.state_size = (self.units, self.units)", "self.state_size = [self.units, self.units]"),
        # The first way drops other inputs for each gate; without dropout the second one gives the same in fewer ops.
        ("implementation=2", "implementation=1"),
        (
            "        if self.implementation == 1:\n",
            "        if self.implementation == 1 and not self.dropout == self.recurrent_dropout == 0:\n",
        ),
        (
            "    constants = to_list_or_none(constants)\n",
            "    constants = to_list_or_none(constants)\n"
            "    _make_op_layers([*(initial_state or ()), *(constants or ())])\n",
        ),
    ],
    "layers.wrappers": [
        ("    @disable_tracking\n    def __init__(", "    def __init__("),
        (
            "super(Bidirectional, self).__init__(layer, ",
            "disable_tracking(super(Bidirectional, self).__init__)(layer, ",
        ),
        (
            "    def __init__(self, layer, merge_mode='concat', weights=None, **kwargs):\n",
            "    def __init__(self, layer, merge_mode='concat', weights=None, backward_layer=None, **kwargs):\n"
            "        _check_wrapped('Bidirectional', layer=layer, backward_layer=backward_layer)\n",
        ),
        ("self._set_sublayers(layer)", "self._set_sublayers(layer, backward_layer)"),
        ("self.input_spec + additional_specs", "[None] + additional_specs"),
        ("self.forward_layer.call(", "self.forward_layer("),
        ("self.backward_layer.call(", "self.backward_layer("),
        (
            "        super(TimeDistributed, self).__init__(layer, **kwargs)\n",
            "        _check_wrapped('TimeDistributed', layer=layer)\n"
            "        super(TimeDistributed, self).__init__(layer, **kwargs)\n"
            "        self._always_use_reshape = _is_builtin(layer) and not getattr(layer, 'stateful', False)\n",
        ),
        (
            "        assert len(input_shape) >= 3\n        self.input_spec = InputSpec(shape=input_shape)\n",
            "        if len(input_shape) < 3:\n"
            "            raise ValueError('`TimeDistributed` Layer should be passed an `input_shape ` with at least '\n"
            "                             '3 dimensions, received: ' + str(input_shape))\n"
            "        self.input_spec = InputSpec(shape=(None, None) + input_shape[2:])\n",
        ),
        (
            "        child_output_shape = self.layer.compute_output_shape(child_input_shape)\n",
            "        child_output_shape = tuple(_as_tuple(self.layer.compute_output_shape(child_input_shape)))\n",
        ),
        (
            "            output_shape = self.compute_output_shape(input_shape)\n",
            "            output_shape = _as_tuple(self.compute_output_shape(input_shape))\n",
        ),
        (
            "        if input_shape[0]:\n            # batch size matters, use",
            "        if input_shape[0] and not self._always_use_reshape:\n            # batch size matters, use",
        ),
        ("self.layer.call(x, **kwargs)", "self.layer(x, **kwargs)"),
        ("self.layer.call(inputs, **kwargs)", "self.layer(inputs, **kwargs)"),
        (  # the layer, which is called, has its penalty
            "        if hasattr(self.layer, 'activity_regularizer'):\n"
            "            return self.layer.activity_regularizer\n",
            "        if False:\n            pass\n",
        ),
        ("        if (hasattr(self.layer, 'activity_regularizer') and\n", "        if (False and\n"),
        ("            return init_tuple + int_shape\n", "            return init_tuple + tuple(int_shape)\n"),
        ("self._input_map[input_uid]\n", "self._input_map.get(input_uid, inputs)\n"),
    ],
    "engine.network": [
        ("        return self._layers\n", "        return _layers_of(self)\n"),
        (
            "        self._uses_inputs_arg = True\n",
            "        self._uses_inputs_arg = True\n        _make_op_layers(outputs)\n",
        ),
        ("        self.trainable = trainable\n", "        self._trainable = trainable\n"),
        (
            "def _base_init(self, name=None, trainable=True, dtype=None):\n",
            "def _base_init(self, name=None, trainable=True, dtype=None, dynamic=False, autocast=None):\n"
            "        self._dynamic = dynamic\n",
        ),
        *((f"layer.call({inputs}, **kwargs)", f"_called_again(layer, {inputs}, kwargs)") for inputs in _COMPUTED),
        ("with K.name_scope(layer.name):", "if True:"),
        ("if (hasattr(layer, 'activity_regularizer') and\n", "if (False and\n"),  # the call has added it
        (  # only a model of inputs and outputs has a node before its first call
            "            if issubclass(layer.__class__, Network):\n",
            "            if isinstance(layer, Network) and layer._is_graph_network:\n",
        ),
        (
            "    def call(self, inputs, mask=None):\n",
            "    def call(self, inputs, training=None, mask=None):\n"
            "        if not self._is_graph_network:\n"
            "            raise NotImplementedError('When subclassing the `Model` class, you should implement a'\n"
            "                                      ' `call` method.')\n"
            "        if training is not None:\n"
            "            with _phase_scope(training):\n                return self.call(inputs, mask=mask)\n",
        ),
        *(
            (f"self.add_{kind}(layer.get_{kinds}_for({of}), {inputs})", "pass")  # layers keep them
            for kind, kinds in (("update", "updates"), ("loss", "losses"))
            for of, inputs in (("computed_tensors", "inputs"), ("None", "None"))
        ),
        (  # layers may get tensors of other layers in any argument
            "        for i in range(len(node.inbound_layers)):\n            x = node.input_tensors[i]\n"
            "            layer = node.inbound_layers[i]\n            node_index = node.node_indices[i]\n"
            "            tensor_index = node.tensor_indices[i]\n",
            "        for x, layer, node_index, tensor_index in _origins(node):\n",
        ),
        (
            "        for i in range(len(node.inbound_layers)):\n            inbound_layer = node.inbound_layers[i]\n"
            "            node_index = node.node_indices[i]\n            inbound_node",
            "        for _, inbound_layer, node_index, _ in _origins(node):\n            inbound_node",
        ),
        (
            "                for x in node.input_tensors:\n",
            "                for x in [*node.input_tensors, *(x for x, *_ in _origins(node))]:\n",
        ),
        (
            "                        if node.arguments:\n                            kwargs = node.arguments\n"
            "                        else:\n                            kwargs = {}\n",
            "                        kwargs = _arguments_now(node, tensor_map)\n",
        ),
        (
            "                            json.dumps(node.arguments)\n"
            "                            kwargs = node.arguments\n",
            "                            kwargs = _arguments_as_config(self, node, node_conversion_map)\n"
            "                            json.dumps(kwargs)\n",
        ),
        (
            "layer(unpack_singleton(input_tensors), **kwargs)",
            "layer(unpack_singleton(input_tensors), **_arguments_of_config(kwargs, created_layers))",
        ),
        (
            "        return cls(inputs=input_tensors, outputs=output_tensors, name=name)\n",
            "        inputs = _in_form_of(config['input_layers'], input_tensors)\n"
            "        outputs = _in_form_of(config['output_layers'], output_tensors)\n"
            "        made = cls(inputs=inputs, outputs=outputs, name=name)\n"
            "        return _with_added(made, created_layers)\n",
        ),
        (
            "            self.output_names.append(layer.name)\n",
            "            _append_unique(self.output_names, layer.name)\n",
        ),
        (
            "    # Build a dict {depth: list of nodes with this depth}\n",
            "    _add_inputs(inputs, layers_depths, layer_indices, nodes_depths, network_nodes)\n",
        ),
        ("if all([hasattr(x, '_keras_shape') for x in computed_tensors]):", "if False:"),  # the call has said it
        (
            "                        output_shape = layer.compute_output_shape(\n"
            "                            unpack_singleton(input_shapes))\n\n"
            "                        output_shapes = to_list(output_shape)\n",
            "                        output_shapes = _shapes_of(layer, unpack_singleton(input_shapes))\n",
        ),
        ("config['input_layers'] = model_inputs", "config['input_layers'] = _in_form(self, 'inputs', model_inputs)"),
        (
            "config['output_layers'] = model_outputs",
            "config['output_layers'] = _in_form(self, 'outputs', model_outputs)",
        ),
        *(
            (f"in config['{kind}_layers']:", f"in _origins_in(config['{kind}_layers']):")
            for kind in ("input", "output")
        ),
        ("input_shapes = [x._keras_shape for x in inputs]", "input_shapes = [K.int_shape(x) for x in inputs]"),
        (
            "        if isinstance(value, Layer):\n            try:\n",
            "        if _has_layers(value):\n            try:\n",
        ),
        ("prefix = self.__class__.__name__.lower()", "prefix = _to_snake_case(self.__class__.__name__)"),
        ("name = prefix + '_' + str(K.get_uid(prefix))", "name = _unique_name(prefix)"),
        (
            "        self._output_tensor_cache[cache_key] = ",
            "        if not _in_scope(): self._output_tensor_cache[cache_key] = ",
        ),
        (
            "if cache_key in self._output_tensor_cache:",
            "if cache_key in self._output_tensor_cache and not _in_scope():",
        ),
    ],
    "utils.layer_utils": [("model.__class__.__name__ == 'Sequential'", "_is_sequence(model)")],
    "utils.losses_utils": [
        ("'Incompatible shapes: ", "'weights can not be broadcast to values: "),
        (
            "        if reduction == Reduction.SUM_OVER_BATCH_SIZE:\n",
            "        if reduction in (Reduction.AUTO, Reduction.SUM_OVER_BATCH_SIZE):\n",
        ),
        (  # a program's loss may be one number for the batch; the weights are ones unless they are given
            "        losses, _, sample_weight = squeeze_or_expand",
            "        if K.ndim(losses) == 0 and K.ndim(sample_weight) == 1:\n"
            "            sample_weight = K.mean(sample_weight)\n"
            "        losses, _, sample_weight = squeeze_or_expand",
        ),
        (  # Keras broadcasts no scalar
            "    # Broadcast weights if possible.\n    weights_shape = K.int_shape(sample_weight)\n",
            "    if K.ndim(sample_weight) == 0:\n        return K.ones_like(values) * sample_weight\n"
            "    weights_shape = K.int_shape(sample_weight)\n",
        ),
    ],
    "optimizers": [
        (  # the number of this step, whatever runs first
            "        t = K.cast(self.iterations, K.floatx()) + 1\n",
            "        with K.control_dependencies(self.updates):\n            t = K.cast(self.iterations, K.floatx())\n",
        ),
        *(  # other classes get these names
            (f"super({name}, self)", "super()")
            for name in ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam")
        ),
        (  # what applies the gradients counts
            "        self.updates = [K.update_add(self.iterations, 1)]\n        opt_update = self.optimizer",
            "        self.updates = []\n        opt_update = self.optimizer",
        ),
        (
            "        else:\n            grads = self.optimizer.compute_gradients(loss, var_list=params)\n",
            "        if not params:  # nothing is trained\n            return [K.update_add(self.iterations, 1)]\n"
            "        grads = self.optimizer.compute_gradients(loss, var_list=params)\n",
        ),
    ],
    "losses": [
        *((f"\ndef {name}(y_true,", f"\n@_casts_targets\ndef {name}(y_true,") for name in _CASTING),
        ("    return - K.sum(y_true * y_pred, axis=axis)\n", "    return K.sum(y_true * y_pred, axis=axis)\n"),
        ("reduction=losses_utils.Reduction.SUM_OVER_BATCH_SIZE", "reduction='auto'"),
        (
            "        self.reduction = reduction\n",
            "        losses_utils.Reduction.validate(reduction)\n        self.reduction = reduction\n",
        ),
    ],
    "metrics": [
        (  # a prediction may be any number
            "    if threshold != 0.5:\n        threshold = K.cast(threshold, y_pred.dtype)\n"
            "        y_pred = K.cast(y_pred > threshold, y_pred.dtype)\n"
            "    return K.mean(K.equal(y_true, K.round(y_pred)), axis=-1)\n",
            "    y_pred = K.cast(y_pred > K.cast(threshold, y_pred.dtype), y_pred.dtype)\n"
            "    return K.mean(K.equal(y_true, y_pred), axis=-1)\n",
        ),
        ("deserialize(config)\n    elif", "deserialize(identifier)\n    elif"),
        ("self.dtype = dtype or K.floatx()", "self.dtype = _dtype_name(dtype) or K.floatx()"),
        (
            "sample_weight = losses_utils.broadcast_weights(values, sample_weight)",
            "values, sample_weight = _reduced_to_weights(self, values, sample_weight)",
        ),
        (  # an unknown rank is not the same as another
            "    if K.ndim(y_true) == K.ndim(y_pred):\n        y_true = K.squeeze",
            "    if K.ndim(y_true) is not None and K.ndim(y_true) == K.ndim(y_pred):\n        y_true = K.squeeze",
        ),
        ("            return self.total / self.count\n", "            return _div_no_nan(self.total, self.count)\n"),
    ],
    "utils.metrics_utils": [("update_op = update_state_fn(", "update_op = _update_of(update_state_fn)(")],
}


def changed(module: str, text: str) -> str:
    """The text of a module of Keras (``engine.network``) as ``tf.keras`` runs it."""
    for pattern, replacement in _EVERYWHERE:
        text = re.sub(pattern, replacement, text)
    for old, new in (*_IN.get(module, ()), *training.CHANGES.get(module, ())):
        if old not in text:
            raise ImportError(f"keras.{module} has no {old.strip()!r}: tf.keras is made from Keras 2.3.1; {REMEDY}")
        text = text.replace(old, new)
    return text


def library() -> ModuleType:
    """The root of the copy, loaded and changed at the first call.

    Raises:
      ImportError: Keras is missing, or is another than 2.3; names the remedy.
    """
    from tfmini.compat.tf_keras import changes

    return load(NAME, _folder, changed, lambda: changes.HELPERS, changes.apply)


def _folder() -> str:
    modules = ("h5py", "six", "yaml", "keras_applications", "keras_preprocessing")
    return installed_folder("Keras", "2.3.1", modules, "tf.keras", REMEDY)
