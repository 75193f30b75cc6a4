"""Public names of TensorFlow 1.x that are out of tfmini's scope, and the nearest supported alternative."""

from __future__ import annotations

import re

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
    "contrib.learn.Estimator": "tf.estimator.Estimator",
    "contrib.learn.Experiment": "tf.estimator.train_and_evaluate with a TrainSpec and an EvalSpec",
    "contrib.learn.RunConfig": "tf.estimator.RunConfig",
    "contrib.learn.learn_runner": "tf.estimator.train_and_evaluate",
    "contrib.learn.run_config": "tf.estimator.RunConfig",
    "contrib.seq2seq.BeamSearchDecoder": "tf.contrib.seq2seq.BasicDecoder with GreedyEmbeddingHelper",
    "contrib.bayesflow": "formulas in ops",
    "contrib.graph_editor": "tf.import_graph_def with input_map",
    "contrib.image": "tf.image, or scipy.ndimage in a tf.py_func",
    "contrib.opt": "the optimizers of tf.train",
    "contrib.resampler": "tf.gather_nd of the four neighbours and their weights",
    "contrib.saved_model": "tf.saved_model",
    "contrib.stateless": "tf.random.stateless_uniform and its kin",
    "contrib.tfprof": "RunOptions.FULL_TRACE with tfmini trace",
    "feature_column": "one of the columns that tf.feature_column has, or ops on the features in a model function",
    "tpu": _DEVICE_WAY,
    "contrib.tpu": "tf.estimator.Estimator in place of TPUEstimator, and tf.device with CPU devices",
    "distribute.cluster_resolver.TPUClusterResolver": _DEVICE_WAY,
    "distribute.cluster_resolver.GCEClusterResolver": "tf.train.ClusterSpec with the addresses",
    "xla": _GRAPH_WAY,
    "GradientTape": "tf.gradients",
    "function": _GRAPH_WAY,
    "autograph": _GRAPH_WAY,
    "wrap_function": _GRAPH_WAY,
    "nondifferentiable_batch_function": _GRAPH_WAY,
    "Module": "tf.variable_scope",
    "enable_eager_execution": _GRAPH_WAY,
    "enable_v2_behavior": _GRAPH_WAY,
    "enable_v2_tensorshape": _GRAPH_WAY,
    "enable_tensor_equality": _GRAPH_WAY,
    "enable_control_flow_v2": _LOOP_WAY,
    "contrib.eager": _GRAPH_WAY,
    "contrib.boosted_trees": "the models of scikit-learn",
    "contrib.factorization": "the models of scikit-learn",
    "contrib.tensor_forest": "the models of scikit-learn",
    "contrib.distributions": "one of tf.distributions, or a subclass of tf.distributions.Distribution",
    "contrib.quantize": _FLOAT_WAY,
    "contrib.slim.nets": "a network of your own, from tf.contrib.slim's layers",
    "contrib.slim.dataset": "tf.data.TFRecordDataset with tf.parse_single_example",
    "contrib.slim.dataset_data_provider": "tf.data.TFRecordDataset with tf.parse_single_example",
    "contrib.slim.tfexample_decoder": "tf.data.TFRecordDataset with tf.parse_single_example",
    "contrib.session_bundle": "tf.saved_model.builder.SavedModelBuilder",
    "contrib.predictor": "tf.saved_model.loader.load and a tf.Session",
    "contrib.cluster_resolver": "tf.distribute.cluster_resolver",
    "contrib.memory_stats": "RunOptions.FULL_TRACE with tfmini trace",
    "contrib.distribute": "tf.estimator.train_and_evaluate with ps in TF_CONFIG, or tf.train.replica_device_setter",
    "distribute.experimental": "tf.train.replica_device_setter",
    "distribute.CrossDeviceOps": "tf.train.SyncReplicasOptimizer, or tf.contrib.nccl's all_sum for an all-reduce",
    "distribute.HierarchicalCopyAllReduce": "tf.train.SyncReplicasOptimizer",
    "distribute.NcclAllReduce": "tf.train.SyncReplicasOptimizer",
    "distribute.ReductionToOneDevice": "tf.train.SyncReplicasOptimizer",
    "distribute.InputContext": "tf.data.Dataset.shard with the task's index",
    "distribute.InputReplicationMode": "tf.data.Dataset.shard with the task's index",
    "distribute.StrategyExtended": "tf.train.replica_device_setter",
    "distribute.get_loss_reduction": "tf.reduce_mean of the loss of each worker",
    "nn.compute_average_loss": "tf.reduce_mean of the loss of each worker",
    "nn.scale_regularization_loss": "the regularization loss as it is",
    "distributions": "another one of tf.distributions, or a subclass of tf.distributions.Distribution",
    "profiler": "RunOptions.FULL_TRACE with tfmini trace",
    "audio": "Python's wave module in a tf.py_func",
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
    "fake_quant_with_min_max_args": _FLOAT_WAY,
    "fake_quant_with_min_max_args_gradient": _FLOAT_WAY,
    "fake_quant_with_min_max_vars": _FLOAT_WAY,
    "fake_quant_with_min_max_vars_gradient": _FLOAT_WAY,
    "fake_quant_with_min_max_vars_per_channel": _FLOAT_WAY,
    "fake_quant_with_min_max_vars_per_channel_gradient": _FLOAT_WAY,
    "config": _CONFIG_WAY,
    "debugging.get_log_device_placement": _CONFIG_WAY,
    "debugging.set_log_device_placement": _CONFIG_WAY,
    "load_op_library": _PYTHON_WAY,
    "load_library": _PYTHON_WAY,
    "load_file_system_library": "a directory that all tasks can reach",
    "user_ops": _PYTHON_WAY,
    "pywrap_tensorflow": "tf.train.NewCheckpointReader",
    "LMDBReader": "tf.TFRecordReader, or tf.data.Dataset.from_generator around the lmdb package",
    "OptionalSpec": _DATA_WAY,
    "RaggedTensorSpec": "tf.TensorSpec of padded tensors",
    "TensorArraySpec": "tf.TensorSpec of stacked tensors",
    "data.DatasetSpec": "the output_types and output_shapes of a tf.data.Dataset",
    "saved_model.load_v2": "tf.saved_model.load",
    "saved_model.save": "tf.saved_model.simple_save",
    "train.sdca_optimizer": "tf.train.FtrlOptimizer",
    "train.sdca_fprint": "tf.strings.to_hash_bucket_strong",
    "train.sdca_shrink_l1": "tf.train.ProximalGradientDescentOptimizer",
    "io.decode_proto": "the Python class of the message in a tf.py_func",
    "io.encode_proto": "the Python class of the message in a tf.py_func",
    "ragged": "tf.RaggedTensor.to_tensor and dense ops",
    "signal": "tf.signal.fft and its kin on windows made with tf.gather",
    "spectral.dct": "tf.signal.rfft of the mirrored signal",
    "spectral.idct": "tf.signal.irfft",
    "linalg.tridiagonal_matmul": _MATRIX_WAY,
    "linalg.tridiagonal_solve": _MATRIX_WAY,
    "image.generate_bounding_box_proposals": "tf.image.non_max_suppression",
    "image.combined_non_max_suppression": "tf.image.non_max_suppression per class",
    "image.adjust_jpeg_quality": "tf.image.encode_jpeg and tf.image.decode_jpeg",
    "image.random_jpeg_quality": "tf.image.encode_jpeg and tf.image.decode_jpeg",
    "image.resize_image_with_pad": "tf.image.resize_images and tf.image.pad_to_bounding_box",
    "image.ssim_multiscale": "tf.image.ssim of images made smaller by tf.nn.avg_pool",
    "extract_volume_patches": "tf.extract_image_patches of each slice",
    "ctc_loss_v2": "tf.nn.ctc_loss_v2",
    "errors.raise_exception_on_not_ok_status": "the exceptions that Session.run raises",
    "strings.ngrams": "tf.strings.join of shifted slices",
    "strings.unicode_script": "Python's unicodedata in a tf.py_func",
    "image.extract_glimpse": "tf.image.crop_and_resize",
    "nn.fractional_avg_pool": "tf.nn.avg_pool",
    "nn.fractional_max_pool": "tf.nn.max_pool",
}

# Patterns of raw ops' names.
_RAW_OPS = (
    (r"BoostedTrees", "the models of scikit-learn in a tf.py_func"),
    (r"Quantize|Dequantize|FakeQuant|Requantiz", _FLOAT_WAY),
    (r"TPU|Xla|Infeed|Outfeed|Prelinearize|CrossReplicaSum|CollectivePermute|AllToAll|WorkerHeartbeat", _DEVICE_WAY),
    (r"CudnnRNN|BlockLSTM|LSTMBlockCell|GRUBlockCell", "the cells of tf.nn.rnn_cell"),
    (r"Dataset|Iterator|StatsAggregator|MemoryCache|RandomSeedGenerator|ThreadPoolHandle|^Optional", _DATA_WAY),
    (r"PartitionedCall|^(Stateless)?(If|While|Case)$|^For$|SymbolicGradient|MapDefun|RemoteCall|FakeParam|BatchFunction",
     _LOOP_WAY),
    (r"^Nccl", "the collective ops of tfmini.ops.collectives, or tf.contrib.nccl"),
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


def name_in_1_0(dotted: str) -> str | None:
    """The name in TensorFlow 1.0 of a removed name of 0.x below ``tf``; None for other names."""
    return _BEFORE_1_0.get(dotted)


def alternative(dotted: str) -> str | None:
    """The alternative to a name below ``tf`` that is out of scope; None for other names.

    Args:
      dotted: such as ``keras.layers.Dense``.
    """
    if dotted.startswith("raw_ops."):
        return next((way for pattern, way in _RAW_OPS if re.search(pattern, dotted[len("raw_ops.") :])), None)
    if dotted.startswith("linalg.LinearOperator"):
        return _MATRIX_WAY
    while dotted:
        if dotted in _NAMES:
            return _NAMES[dotted]
        dotted = dotted.rpartition(".")[0]
    return None
