"""Public names of TensorFlow that tfmini does not have: what they are, and the nearest supported alternative."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmini.export import ALIASES

_GRAPH_WAY = "a graph of ops and a tf.Session"
_DEVICE_WAY = "tf.device with CPU devices"
_FLOAT_WAY = "floating-point ops: quantised arithmetic is not emulated"
_CONFIG_WAY = "the fields of tf.ConfigProto, given to tf.Session"
_PYTHON_WAY = "tf.py_func, or a kernel registered with tfmini.graph.registry.op"
_MATRIX_WAY = "plain matrices and tf.matmul, tf.linalg.solve and tf.linalg.cholesky"
_DATA_WAY = "the methods of tf.data.Dataset"
_LOOP_WAY = "tf.cond and tf.while_loop"

# Keys are names below ``tf``; a key also covers all names below it.
_NAMES = {
    "estimator": "tf.estimator.Estimator with a model function",
    "estimator.tpu": _DEVICE_WAY,
    "estimator.experimental": "tf.estimator.Estimator with a model function and hooks",
    "contrib.estimator": "tf.estimator.Estimator with a model function",
    "contrib.learn": "tf.estimator.Estimator with a model function, and tf.estimator.train_and_evaluate",
    "contrib.learn.KMeansClustering": "tf.contrib.factorization.KMeansClustering",
    "contrib.learn.run_config": "tf.estimator.RunConfig",
    "contrib.bayesflow": "formulas in ops",
    "contrib.image": "tf.image, or the transforms and warps of tf.contrib.image",
    "contrib.opt": "the optimizers of tf.train, and those that tf.contrib.opt has",
    "contrib.nccl": "tf.collective_ops.all_reduce, or tf.train.AllReduceOptimizer",
    "feature_column": "one of the columns that tf.feature_column has, or ops on the features in a model function",
    "tpu": _DEVICE_WAY,
    "contrib.tpu": "TPUEstimator(use_tpu=False), and tf.device with CPU devices",
    "distribute.cluster_resolver.GCEClusterResolver": "tf.train.ClusterSpec with the addresses",
    "profiler": "tf.profiler.profile, or tf.StepTrace of a RunMetadata",
    "contrib.tfprof": "tf.profiler.profile, or tf.StepTrace of a RunMetadata",
    "xla": _GRAPH_WAY,
    "autograph": "tf.function, and tf.autograph.to_graph",
    "wrap_function": _GRAPH_WAY,
    "nondifferentiable_batch_function": _GRAPH_WAY,
    "enable_eager_execution": _GRAPH_WAY,
    "enable_v2_behavior": _GRAPH_WAY,
    "enable_v2_tensorshape": _GRAPH_WAY,
    "enable_tensor_equality": _GRAPH_WAY,
    "enable_control_flow_v2": _LOOP_WAY,
    "contrib.eager": _GRAPH_WAY,
    "contrib.autograph": "tf.function, and tf.autograph.to_graph",
    "contrib.cudnn_rnn": "tf.contrib.rnn.LSTMBlockCell, or the cells of tf.nn.rnn_cell",
    "contrib.data.LMDBDataset": "tf.data.Dataset.from_generator around the lmdb package",
    "contrib.layers.scattered_embedding_column": "tf.feature_column.embedding_column",
    "contrib.linear_optimizer": "tf.train.FtrlOptimizer",
    "contrib.lookup": "tf.contrib.lookup.index_table_from_tensor and index_table_from_file",
    "contrib.losses": "tf.losses, or the formula in ops",
    "contrib.metrics": "tf.metrics, or the formula in ops",
    "contrib.mixed_precision": "tf.train.experimental.MixedPrecisionLossScaleOptimizer",
    "contrib.periodic_resample": "tf.space_to_depth, tf.depth_to_space and tf.reshape",
    "contrib.rnn": "the cells of tf.nn.rnn_cell with tf.nn.dynamic_rnn, and tf.contrib.rnn.LSTMBlockFusedCell",
    "initializers.serialize": "the initializer's get_config",
    "initializers.deserialize": "the initializer's from_config",
    "optimizers": "the optimizers of tf.train",
    "summary": "the functions of tf.summary of version 1, and tf.contrib.summary",
    "train.experimental": "tf.train.experimental.MixedPrecisionLossScaleOptimizer",
    "compat.v2.summary": "tf.summary of version 1, and tf.contrib.summary",
    "contrib.boosted_trees": "the models of scikit-learn",
    "contrib.factorization": "its KMeans and KMeansClustering, or the models of scikit-learn",
    **dict.fromkeys(
        ("contrib.factorization.GMM", "contrib.factorization.gmm", "contrib.factorization.GmmAlgorithm"),
        "sklearn.mixture.GaussianMixture, or KMeansClustering of tf.contrib.factorization",
    ),
    **dict.fromkeys(
        ("contrib.factorization.WALSModel", "contrib.factorization.WALSMatrixFactorization"),
        "an embedding for rows and one for columns, trained on the loss of their products",
    ),
    "contrib.tensor_forest": "the models of scikit-learn",
    "contrib.distributions": "one of tf.distributions, or a subclass of tf.distributions.Distribution",
    "contrib.session_bundle": "tf.saved_model.builder.SavedModelBuilder",
    "contrib.predictor.from_contrib_estimator": "tf.contrib.predictor.from_estimator",
    "contrib.memory_stats": "RunOptions.FULL_TRACE with tfmini trace",
    "contrib.distribute": "the strategies that it has, or ps in TF_CONFIG with tf.train.replica_device_setter",
    "distribute.experimental": "the strategies that it has, or tf.train.replica_device_setter",
    "distribute.CrossDeviceOps": "tf.distribute.experimental.MultiWorkerMirroredStrategy",
    "distribute.HierarchicalCopyAllReduce": "tf.train.SyncReplicasOptimizer",
    "distribute.NcclAllReduce": "tf.train.SyncReplicasOptimizer",
    "distribute.ReductionToOneDevice": "tf.train.SyncReplicasOptimizer",
    "distribute.InputReplicationMode": "tf.data.Dataset.shard with the task's index",
    "distribute.StrategyExtended": "tf.distribute.Strategy, which has its methods",
    "distribute.get_loss_reduction": "tf.reduce_mean of the loss of each worker",
    "nn.compute_average_loss": "tf.reduce_mean of the loss of each worker",
    "nn.scale_regularization_loss": "the regularization loss as it is",
    "distributions": "another one of tf.distributions, or a subclass of tf.distributions.Distribution",
    "quantization": _FLOAT_WAY,
    "quantize": _FLOAT_WAY,
    "quantize_v2": _FLOAT_WAY,
    "dequantize": _FLOAT_WAY,
    "quantized_concat": _FLOAT_WAY,
    "nn.quantized_avg_pool": _FLOAT_WAY,
    "nn.quantized_conv2d": _FLOAT_WAY,
    "nn.quantized_max_pool": _FLOAT_WAY,
    "nn.quantized_relu_x": _FLOAT_WAY,
    "train.do_quantize_training_on_graphdef": _FLOAT_WAY,
    "config": _CONFIG_WAY,
    "debugging.get_log_device_placement": _CONFIG_WAY,
    "debugging.set_log_device_placement": _CONFIG_WAY,
    "load_op_library": _PYTHON_WAY,
    "load_library": _PYTHON_WAY,
    "load_file_system_library": "a directory that all tasks can reach",
    "user_ops": _PYTHON_WAY,
    "pywrap_tensorflow": "tf.train.NewCheckpointReader",
    "LMDBReader": "tf.TFRecordReader, or tf.data.Dataset.from_generator around the lmdb package",
    "TensorArraySpec": "tf.TensorSpec of stacked tensors",
    "train.sdca_optimizer": "tf.train.FtrlOptimizer",
    "train.sdca_fprint": "tf.strings.to_hash_bucket_strong",
    "train.sdca_shrink_l1": "tf.train.ProximalGradientDescentOptimizer",
    "ragged": "tf.RaggedTensor.to_tensor and dense ops",
    "signal": "tf.signal.fft and its kin, and tf.roll for shifts",
    "image.generate_bounding_box_proposals": "tf.image.non_max_suppression",
    "ctc_loss_v2": "tf.nn.ctc_loss_v2",
    "strings.unicode_script": "Python's unicodedata in a tf.py_func",
}

# Patterns of raw ops' names.
_RAW_OPS = (
    (r"BoostedTrees", "the models of scikit-learn in a tf.py_func"),
    (r"Quantize|Dequantize|Requantiz", _FLOAT_WAY),
    (r"TPU|Xla|Infeed|Outfeed|Prelinearize|CrossReplicaSum|CollectivePermute|AllToAll|WorkerHeartbeat", _DEVICE_WAY),
    (r"CudnnRNN|BlockLSTM|LSTMBlockCell|GRUBlockCell", "the cells of tf.nn.rnn_cell"),
    (r"Dataset|Iterator|StatsAggregator|MemoryCache|RandomSeedGenerator|ThreadPoolHandle|^Optional", _DATA_WAY),
    (r"PartitionedCall|^(Stateless)?(If|While|Case)$|^For$|SymbolicGradient|MapDefun|RemoteCall|FakeParam|BatchFunction",
     _LOOP_WAY),
    (r"^Nccl", "tf.collective_ops.all_reduce"),
    (r"^Debug", "tf.Print"),
    (r"^Sdca", "tf.train.FtrlOptimizer"),
    (r"^LinearOperator|Tridiagonal", _MATRIX_WAY),
    (r"^TensorArray", "tf.TensorArray, which uses the third version of these ops"),
    (r"^TensorList|^EmptyTensorList", "tf.TensorArray"),
    (r"^Ragged", "tf.RaggedTensor"),
    (r"^Stateful|^Rng|^NonDeterministicInts", "the random ops, whose seed is an attr"),
    (r"^Batch(Cholesky|FFT|IFFT|Matrix|SelfAdjoint|Svd)", "the op without Batch, which takes batches"),
    (r"^Audio|Wav$|^Mfcc|^LMDB|Proto(V2)?$", "Python code in a tf.py_func"),
    (r"SummaryDbWriter|^WriteAudio", "tf.summary.FileWriter"),
)  # fmt: skip


# Names of TensorFlow 0.x that 1.0 removed, and their replacements.
_BEFORE_1_0 = {
    "mul": "tf.multiply",
    "sub": "tf.subtract",
    "neg": "tf.negative",
    "pack": "tf.stack",
    "unpack": "tf.unstack",
    "concat_v2": "tf.concat",
    "inv": "tf.reciprocal",
    "select": "tf.where",
    "listdiff": "tf.setdiff1d",
    "complex_abs": "tf.abs",
    "batch_matmul": "tf.matmul",
    "batch_svd": "tf.svd",
    "batch_cholesky": "tf.cholesky",
    "batch_matrix_diag": "tf.matrix_diag",
    "scalar_summary": "tf.summary.scalar",
    "histogram_summary": "tf.summary.histogram",
    "image_summary": "tf.summary.image",
    "audio_summary": "tf.summary.audio",
    "merge_summary": "tf.summary.merge",
    "merge_all_summaries": "tf.summary.merge_all",
    "train.SummaryWriter": "tf.summary.FileWriter",
    "train.SyncReplicasOptimizerV2": "tf.train.SyncReplicasOptimizer",
    "image.per_image_whitening": "tf.image.per_image_standardization",
    "nn.deconv2d": "tf.nn.conv2d_transpose",
    "nn.rnn": "tf.nn.static_rnn",
    "nn.bidirectional_rnn": "tf.nn.static_bidirectional_rnn",
    "models.rnn.rnn_cell": "tf.nn.rnn_cell",
    "models.rnn.rnn": "tf.nn",
    "RegisterShape": "tfmini.graph.registry.op, whose shape function is a part of the op",
}


# Names of TensorFlow 2 and how TensorFlow 1 says it. A key also covers all names below it.
_LOSSES_WAY, _METRICS_WAY = "the functions of tf.losses", "the functions of tf.metrics"
_IN_1 = {
    "data": _DATA_WAY,
    "data.AUTOTUNE": "tf.data.experimental.AUTOTUNE",
    "data.INFINITE_CARDINALITY": "tf.data.experimental.INFINITE_CARDINALITY",
    "data.UNKNOWN_CARDINALITY": "tf.data.experimental.UNKNOWN_CARDINALITY",
    "data.NumpyIterator": "Dataset.make_one_shot_iterator",
    "data.experimental.service": "tf.data.Dataset.shard with the task's index",
    "losses": _LOSSES_WAY,
    "losses.MeanSquaredError": "tf.losses.mean_squared_error",
    "losses.MeanAbsoluteError": "tf.losses.absolute_difference",
    "losses.BinaryCrossentropy": "tf.losses.sigmoid_cross_entropy",
    "losses.CategoricalCrossentropy": "tf.losses.softmax_cross_entropy",
    "losses.SparseCategoricalCrossentropy": "tf.losses.sparse_softmax_cross_entropy",
    "losses.CosineSimilarity": "tf.losses.cosine_distance",
    "losses.Hinge": "tf.losses.hinge_loss",
    "losses.Huber": "tf.losses.huber_loss",
    "metrics": _METRICS_WAY,
    "metrics.AUC": "tf.metrics.auc",
    "metrics.Mean": "tf.metrics.mean",
    "metrics.MeanIoU": "tf.metrics.mean_iou",
    "metrics.MeanSquaredError": "tf.metrics.mean_squared_error",
    "metrics.Precision": "tf.metrics.precision",
    "metrics.Recall": "tf.metrics.recall",
    **{f"metrics.{kind}Accuracy": "tf.metrics.accuracy" for kind in ("", "Binary", "Categorical", "SparseCategorical")},
    "initializers": "the initializers of TensorFlow 1, such as tf.initializers.glorot_uniform",
    "initializers.HeNormal": "tf.initializers.he_normal",
    "initializers.HeUniform": "tf.initializers.he_uniform",
    "random": "tf.random.uniform and its kin",
    "random.Generator": "tf.random.uniform and its kin, with a seed",
    "random.set_seed": "tf.set_random_seed",
    "distribute": "tf.train.replica_device_setter and tf.train.MonitoredTrainingSession",
    "distribute.MultiWorkerMirroredStrategy": "tf.train.SyncReplicasOptimizer, or tf.train.AllReduceOptimizer",
    "saved_model": "tf.saved_model.simple_save and tf.saved_model.load",
    "train.CheckpointOptions": "tf.train.Checkpoint without options",
    "image.resize_with_pad": "tf.image.resize_image_with_pad",
    **{
        f"image.stateless_random_{what}": f"tf.image.random_{what}"
        for what in ("brightness", "contrast", "flip_left_right", "flip_up_down", "hue", "saturation")
    },
    "image.stateless_random_crop": "tf.random_crop",
    "nn.gelu": "0.5 * x * (1 + tf.erf(x / 2 ** 0.5))",
    "nn.silu": "tf.nn.swish",
    "nn.RNNCellDeviceWrapper": "tf.nn.rnn_cell.DeviceWrapper",
    "nn.RNNCellDropoutWrapper": "tf.nn.rnn_cell.DropoutWrapper",
    "nn.RNNCellResidualWrapper": "tf.nn.rnn_cell.ResidualWrapper",
    "nn.experimental": "tf.nn.dropout",
    "math": "scipy.special in a tf.py_func",
    "linalg": "numpy.linalg in a tf.py_func",
    "eig": "numpy.linalg.eig in a tf.py_func",
    "eigvals": "numpy.linalg.eigvals in a tf.py_func",
    "io.encode_png": "tf.image.encode_png",
    "io.gfile.join": "os.path.join",
    "autodiff": "tf.gradients",
    "experimental.numpy": "the functions of tf",
    "get_current_name_scope": "tf.get_default_graph().get_name_scope()",
    "is_symbolic_tensor": "isinstance(x, tf.Tensor)",
    "type_spec_from_value": "tf.TensorSpec.from_tensor",
}

# Members that objects have in TensorFlow 2, or in another framework, by the names of their classes.
_RUN = "a value exists only while a session runs: session.run({}) returns it as a numpy array"
_UNTIL_END = "run dataset.make_one_shot_iterator().get_next() until tf.errors.OutOfRangeError"
_MEMBERS = {
    "Tensor": {
        **dict.fromkeys(("numpy", "item", "tolist", "detach", "cpu"), _RUN.format("tensor")),
        **dict.fromkeys(("backward", "grad"), "tf.gradients(loss, variables) adds the ops of the gradients"),
        "ref": "use experimental_ref(), or the tensor itself as a key",
        "assign": "only variables can be assigned to: make it by tf.get_variable",
    },
    "Variable": {
        **dict.fromkeys(("numpy", "item", "tolist"), _RUN.format("variable")),
        "ref": "use experimental_ref(), or the variable itself as a key",
    },
    "Dataset": {
        "as_numpy_iterator": _UNTIL_END,
        "cardinality": "use tf.data.experimental.cardinality(dataset)",
        "unique": "use dataset.apply(tf.data.experimental.unique())",
        "scan": "use dataset.apply(tf.data.experimental.scan(initial_state, function))",
        "take_while": "use dataset.apply(tf.data.experimental.take_while(predicate))",
        "bucket_by_sequence_length": "use dataset.apply(tf.data.experimental.bucket_by_sequence_length(...))",
        **dict.fromkeys(("save", "snapshot"), "use cache(filename), or tf.python_io.TFRecordWriter"),
    },
    "Iterator": {"next": "get_next() gives the tensors of the next element"},
    "Optimizer": {
        **dict.fromkeys(("get_weights", "weights"), "use variables()"),
        "learning_rate": "give the optimizer a tensor or a variable as learning_rate and keep that",
        "iterations": "use the global_step that minimize gets",
    },
}  # fmt: skip


class Advising:
    """An object of TensorFlow that says what to use in place of members that it has elsewhere."""

    __slots__ = ()

    if not TYPE_CHECKING:  # which would take every name for a member

        def __getattr__(self, name: str) -> Any:
            kinds = () if name.startswith("_") else type(self).__mro__
            remedy = next(filter(None, (_MEMBERS.get(kind.__name__, {}).get(name) for kind in kinds)), None)
            if remedy is not None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}: {remedy}")
            return object.__getattribute__(self, name)  # raises Python's error, or that of a property


def ways() -> list[str]:
    """All that this page says to use in place of other names."""
    return [*_NAMES.values(), *(way for _, way in _RAW_OPS), *_BEFORE_1_0.values(), *_IN_1.values()]


_HAS_NAMES_OF = {**ALIASES, "contrib.slim.layers": "contrib.layers"}


@functools.cache
def _absent() -> dict[str, str]:
    """Name below ``tf`` -> the release of TensorFlow that has it: 1 or 2."""
    lines = Path(__file__).with_name("absent_names.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {
        name if namespace == "-" else f"{namespace}.{name}": release
        for release, namespace, *names in rows for name in names
    }  # fmt: skip


def in_tensorflow(dotted: str) -> str:
    """What TensorFlow has of a name below ``tf`` that tfmini does not have, with what to use instead."""
    release = _absent().get(dotted) or _absent().get(_canonical(dotted), "")
    way = _nearest(_IN_1, dotted) if release != "1" else None
    if release == "2":
        return f"tf.{dotted} is a name of TensorFlow 2; in TensorFlow 1 use {way or _GRAPH_WAY}"
    return (
        f"TensorFlow 1.15 has tf.{dotted}, tfmini does not" if release else f"TensorFlow 1.15 has no tf.{dotted} either"
    )


def name_in_1_0(dotted: str) -> str | None:
    """The name in TensorFlow 1.0 of a removed name of 0.x below ``tf``; None for other names."""
    return _BEFORE_1_0.get(dotted)


def alternative(dotted: str) -> str | None:
    """The alternative to a name below ``tf`` that is out of scope; None for other names.

    Args:
      dotted: such as ``keras.layers.Dense``.
    """
    if dotted.startswith("compat.v2."):
        return _nearest(_NAMES, dotted) or alternative(dotted[len("compat.v2.") :])
    if dotted.startswith("raw_ops."):
        return next((way for pattern, way in _RAW_OPS if re.search(pattern, dotted[len("raw_ops.") :])), None)
    return _nearest(_NAMES, dotted) or _nearest(_NAMES, _canonical(dotted))


def is_listed(dotted: str) -> bool:
    """Whether a name below ``tf`` has an entry of its own, so that it is no misspelt one of its namespace."""
    return dotted in _NAMES or _canonical(dotted) in _NAMES


def _canonical(dotted: str) -> str:
    """The name in the namespace that has these names too: ``contrib.metrics.f1_score`` for the one of slim."""
    namespace, _, name = dotted.rpartition(".")
    return f"{_HAS_NAMES_OF.get(namespace, namespace)}.{name}"


def _nearest(ways: dict[str, str], dotted: str) -> str | None:
    """The entry of the name, or of the nearest namespace around it that has one."""
    parts = dotted.split(".")
    return next(filter(None, (ways.get(".".join(parts[:end])) for end in range(len(parts), 0, -1))), None)
