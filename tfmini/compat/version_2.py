"""``tf.compat.v2``: the names of TensorFlow 2 that exist in a graph of version 1, for libraries that serve both.

`SAME` has the names that mean the same in both versions, as in TensorFlow 1.15. Those whose arguments have another
order or other names are made by `adapted` from `CHANGED`. What needs eager execution is absent.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import Parameter, Signature
from typing import Any

ROOT = "tfmini"

# Namespace below ``tf.compat.v2`` -> the names that it shares with the same namespace of version 1.
SAME = {
    "": (
        "compat function GradientTape keras losses metrics optimizers "
        "abs acos acosh add add_n AggregationMethod argsort as_dtype as_string asin asinh Assert atan atan2 atanh "
        "bfloat16 bitcast bool broadcast_dynamic_shape broadcast_static_shape broadcast_to case cast "
        "clip_by_global_norm clip_by_norm clip_by_value complex complex128 complex64 concat constant_initializer "
        "control_dependencies cos cosh CriticalSection cumsum custom_gradient DeviceSpec divide double DType "
        "dynamic_partition dynamic_stitch edit_distance einsum ensure_shape equal executing_eagerly exp eye fill "
        "fingerprint float16 float32 float64 floor foldl foldr get_logger get_static_value grad_pass_through Graph "
        "greater greater_equal group guarantee_const half histogram_fixed_width histogram_fixed_width_bins identity "
        "identity_n import_graph_def IndexedSlices IndexedSlicesSpec init_scope int16 int32 int64 int8 is_tensor less "
        "less_equal linspace logical_and logical_not logical_or make_ndarray make_tensor_proto map_fn matmul "
        "matrix_square_root maximum meshgrid minimum Module multiply negative newaxis no_gradient no_op not_equal "
        "numpy_function one_hot ones ones_initializer Operation parallel_stack pow print py_function qint16 qint32 "
        "qint8 quint16 quint8 RaggedTensor range rank realdiv recompute_grad register_tensor_conversion_function "
        "RegisterGradient repeat required_space_to_batch_paddings reshape resource reverse roll round saturate_cast "
        "scalar_mul scan scatter_nd searchsorted sequence_mask shape_n sigmoid sign sin sinh slice sort "
        "space_to_batch_nd SparseTensor SparseTensorSpec split sqrt square stack stop_gradient strided_slice string "
        "subtract switch_case tan tanh Tensor tensor_scatter_nd_add tensor_scatter_nd_sub tensor_scatter_nd_update "
        "TensorArray tensordot TensorShape TensorSpec tile timestamp truediv truncatediv truncatemod TypeSpec uint16 "
        "uint32 uint64 uint8 UnconnectedGradients unique unique_with_counts unravel_index unstack Variable "
        "variable_creator_scope VariableAggregation VariableSynchronization variant vectorized_map where zeros "
        "zeros_initializer"
    ),
    "bitwise": "bitwise_and bitwise_or bitwise_xor invert left_shift right_shift",
    "data": "Dataset FixedLengthRecordDataset Options TextLineDataset TFRecordDataset",
    "data.experimental": (
        "AUTOTUNE Counter CsvDataset INFINITE_CARDINALITY OptimizationOptions Optional RandomDataset Reducer "
        "TFRecordWriter ThreadingOptions UNKNOWN_CARDINALITY bucket_by_sequence_length cardinality "
        "choose_from_datasets copy_to_device dense_to_sparse_batch enumerate_dataset get_next_as_optional "
        "get_single_element group_by_reducer group_by_window ignore_errors make_batched_features_dataset "
        "make_csv_dataset map_and_batch parallel_interleave parse_example_dataset prefetch_to_device "
        "sample_from_datasets scan shuffle_and_repeat take_while unbatch unique"
    ),
    "debugging": (
        "Assert assert_integer assert_proper_iterable assert_same_float_dtype assert_shapes assert_type "
        "check_numerics is_numeric_tensor"
    ),
    "distribute": (
        "MirroredStrategy OneDeviceStrategy ReduceOp ReplicaContext Server Strategy get_replica_context get_strategy "
        "has_strategy in_cross_replica_context"
    ),
    "distribute.cluster_resolver": (
        "ClusterResolver KubernetesClusterResolver SimpleClusterResolver SlurmClusterResolver TFConfigClusterResolver "
        "TPUClusterResolver UnionResolver"
    ),
    "dtypes": (
        "DType QUANTIZED_DTYPES as_dtype bfloat16 bool cast complex complex128 complex64 double float16 float32 "
        "float64 half int16 int32 int64 int8 qint16 qint32 qint8 quint16 quint8 resource saturate_cast string uint16 "
        "uint32 uint64 uint8 variant"
    ),
    "errors": (
        "ABORTED ALREADY_EXISTS AbortedError AlreadyExistsError CANCELLED CancelledError DATA_LOSS DEADLINE_EXCEEDED "
        "DataLossError DeadlineExceededError FAILED_PRECONDITION FailedPreconditionError INTERNAL INVALID_ARGUMENT "
        "InternalError InvalidArgumentError NOT_FOUND NotFoundError OK OUT_OF_RANGE OpError OutOfRangeError "
        "PERMISSION_DENIED PermissionDeniedError RESOURCE_EXHAUSTED ResourceExhaustedError UNAUTHENTICATED "
        "UNAVAILABLE UNIMPLEMENTED UNKNOWN UnauthenticatedError UnavailableError UnimplementedError UnknownError"
    ),
    "estimator": (
        "BestExporter BinaryClassHead CheckpointSaverHook CheckpointSaverListener Estimator EstimatorSpec EvalSpec "
        "Exporter FeedFnHook FinalExporter FinalOpsHook GlobalStepWaiterHook LatestExporter LoggingTensorHook "
        "LogisticRegressionHead ModeKeys MultiClassHead MultiHead MultiLabelHead NanLossDuringTrainingError "
        "NanTensorHook PoissonRegressionHead ProfilerHook RegressionHead RunConfig SecondOrStepTimer SessionRunArgs "
        "SessionRunContext SessionRunHook SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook TrainSpec "
        "VocabInfo WarmStartSettings add_metrics train_and_evaluate"
    ),
    "estimator.export": (
        "ClassificationOutput ExportOutput PredictOutput RegressionOutput ServingInputReceiver "
        "TensorServingInputReceiver build_parsing_serving_input_receiver_fn build_raw_serving_input_receiver_fn"
    ),
    "feature_column": (
        "bucketized_column categorical_column_with_hash_bucket categorical_column_with_identity "
        "categorical_column_with_vocabulary_list crossed_column embedding_column indicator_column "
        "make_parse_example_spec numeric_column weighted_categorical_column"
    ),
    "graph_util": "import_graph_def",
    "image": (
        "adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_saturation central_crop "
        "convert_image_dtype crop_to_bounding_box decode_and_crop_jpeg decode_bmp decode_gif decode_image decode_jpeg "
        "decode_png encode_jpeg encode_png extract_jpeg_shape extract_patches flip_left_right flip_up_down "
        "grayscale_to_rgb hsv_to_rgb image_gradients is_jpeg non_max_suppression non_max_suppression_overlaps "
        "non_max_suppression_padded non_max_suppression_with_scores pad_to_bounding_box per_image_standardization "
        "psnr random_brightness random_contrast random_crop random_flip_left_right random_flip_up_down random_hue "
        "random_saturation resize_with_crop_or_pad rgb_to_grayscale rgb_to_hsv rgb_to_yiq rgb_to_yuv rot90 "
        "sobel_edges ssim total_variation transpose yiq_to_rgb yuv_to_rgb"
    ),
    "initializers": (
        "constant deserialize get glorot_normal glorot_uniform he_normal he_uniform identity lecun_normal "
        "lecun_uniform ones orthogonal serialize zeros"
    ),
    "io": (
        "FixedLenFeature FixedLenSequenceFeature SparseFeature TFRecordOptions TFRecordWriter VarLenFeature "
        "decode_and_crop_jpeg decode_base64 decode_bmp decode_compressed decode_gif decode_image decode_jpeg "
        "decode_json_example decode_png deserialize_many_sparse encode_base64 encode_jpeg extract_jpeg_shape is_jpeg "
        "match_filenames_once matching_files parse_sequence_example parse_single_sequence_example parse_tensor "
        "read_file serialize_tensor write_file write_graph"
    ),
    "io.gfile": "GFile copy exists glob isdir listdir makedirs mkdir remove rename rmtree stat walk",
    "linalg": (
        "LinearOperator LinearOperatorAdjoint LinearOperatorBlockDiag LinearOperatorCirculant "
        "LinearOperatorCirculant2D LinearOperatorCirculant3D LinearOperatorComposition LinearOperatorDiag "
        "LinearOperatorFullMatrix LinearOperatorHouseholder LinearOperatorIdentity LinearOperatorInversion "
        "LinearOperatorKronecker LinearOperatorLowRankUpdate LinearOperatorLowerTriangular "
        "LinearOperatorScaledIdentity LinearOperatorToeplitz LinearOperatorZeros "
        "adjoint band_part cholesky cholesky_solve cross det diag diag_part eigh eigvalsh einsum expm eye global_norm "
        "inv logdet logm lstsq lu matmul matrix_rank matrix_transpose matvec normalize pinv qr set_diag slogdet solve "
        "sqrtm svd tensor_diag tensor_diag_part tensordot trace triangular_solve"
    ),
    "lookup": ("KeyValueTensorInitializer StaticHashTable StaticVocabularyTable TextFileIndex TextFileInitializer"),
    "lookup.experimental": "DenseHashTable",
    "math": (
        "abs accumulate_n acos acosh add add_n angle asin asinh atan atan2 atanh bessel_i0 bessel_i0e bessel_i1 "
        "bessel_i1e betainc ceil conj cos cosh cumprod cumsum cumulative_logsumexp digamma divide divide_no_nan equal "
        "erf erfc exp expm1 floor floordiv floormod greater greater_equal igamma igammac imag invert_permutation "
        "is_finite is_inf is_nan is_non_decreasing is_strictly_increasing lbeta less less_equal lgamma log log1p "
        "log_sigmoid logical_and logical_not logical_or logical_xor maximum minimum mod multiply multiply_no_nan "
        "negative nextafter not_equal polygamma polyval pow real reciprocal reciprocal_no_nan reduce_euclidean_norm "
        "reduce_std reduce_variance rint round rsqrt scalar_mul segment_max segment_mean segment_min segment_prod "
        "segment_sum sigmoid sign sin sinh softplus softsign sqrt square squared_difference subtract tan tanh top_k "
        "truediv unsorted_segment_max unsorted_segment_mean unsorted_segment_min unsorted_segment_prod "
        "unsorted_segment_sqrt_n unsorted_segment_sum xdivy xlogy zero_fraction zeta"
    ),
    "nest": "assert_same_structure flatten is_nested map_structure pack_sequence_as",
    "nn": (
        "all_candidate_sampler atrous_conv2d atrous_conv2d_transpose avg_pool1d avg_pool3d batch_normalization "
        "bias_add collapse_repeated compute_accidental_hits conv1d_transpose conv_transpose ctc_greedy_decoder "
        "ctc_unique_labels depthwise_conv2d_backprop_filter depthwise_conv2d_backprop_input elu "
        "fixed_unigram_candidate_sampler l2_loss leaky_relu learned_unigram_candidate_sampler "
        "local_response_normalization log_poisson_loss lrn max_pool1d max_pool2d max_pool3d normalize_moments relu "
        "relu6 selu sigmoid softplus softsign swish tanh top_k with_space_to_batch zero_fraction"
    ),
    "queue": "FIFOQueue PaddingFIFOQueue PriorityQueue QueueBase RandomShuffleQueue",
    "ragged": "constant",
    "random": (
        "all_candidate_sampler categorical fixed_unigram_candidate_sampler gamma learned_unigram_candidate_sampler "
        "log_uniform_candidate_sampler normal set_seed shuffle stateless_categorical stateless_normal "
        "stateless_truncated_normal stateless_uniform truncated_normal uniform uniform_candidate_sampler"
    ),
    "saved_model": (
        "ASSETS_DIRECTORY ASSETS_KEY CLASSIFY_INPUTS CLASSIFY_METHOD_NAME CLASSIFY_OUTPUT_CLASSES "
        "CLASSIFY_OUTPUT_SCORES DEFAULT_SERVING_SIGNATURE_DEF_KEY GPU PREDICT_INPUTS PREDICT_METHOD_NAME "
        "PREDICT_OUTPUTS REGRESS_INPUTS REGRESS_METHOD_NAME REGRESS_OUTPUTS SAVED_MODEL_FILENAME_PB "
        "SAVED_MODEL_FILENAME_PBTXT SAVED_MODEL_SCHEMA_VERSION SERVING TPU TRAINING VARIABLES_DIRECTORY "
        "VARIABLES_FILENAME contains_saved_model"
    ),
    "sets": "difference intersection size union",
    "signal": (
        "dct fft fft2d fft3d frame hamming_window hann_window idct ifft ifft2d ifft3d inverse_stft "
        "inverse_stft_window_fn irfft irfft2d irfft3d linear_to_mel_weight_matrix mfccs_from_log_mel_spectrograms "
        "overlap_and_add rfft rfft2d rfft3d stft"
    ),
    "sparse": (
        "SparseTensor cross cross_hashed expand_dims eye fill_empty_rows from_dense mask maximum minimum reorder "
        "reset_shape reshape retain slice softmax sparse_dense_matmul to_dense to_indicator transpose"
    ),
    "strings": (
        "as_string bytes_split format join lower regex_full_match regex_replace strip to_hash_bucket_fast "
        "to_hash_bucket_strong unicode_decode unicode_decode_with_offsets unicode_encode unicode_split "
        "unicode_split_with_offsets unicode_transcode unsorted_segment_join upper"
    ),
    "summary": "SummaryWriter create_file_writer create_noop_writer flush record_if scalar text write",
    "summary.experimental": "get_step set_step summary_scope",
    "sysconfig": "CXX11_ABI_FLAG MONOLITHIC_BUILD get_compile_flags get_include get_lib get_link_flags",
    "test": (
        "Benchmark benchmark_config compute_gradient create_local_cluster gpu_device_name is_built_with_cuda "
        "is_built_with_gpu_support is_built_with_rocm is_gpu_available main TestCase"
    ),
    "train": (
        "BytesList Checkpoint CheckpointManager ClusterDef ClusterSpec Coordinator Example ExponentialMovingAverage "
        "Feature FeatureList FeatureLists Features FloatList Int64List JobDef SequenceExample ServerDef "
        "checkpoints_iterator get_checkpoint_state latest_checkpoint list_variables load_checkpoint load_variable"
    ),
    "train.experimental": "DynamicLossScale FixedLossScale LossScale",
    "version": (
        "COMPILER_VERSION GIT_VERSION GRAPH_DEF_VERSION GRAPH_DEF_VERSION_MIN_CONSUMER GRAPH_DEF_VERSION_MIN_PRODUCER "
        "VERSION"
    ),
}

_REDUCTION = "input_tensor axis=None keepdims=False name=None"
_POOL = "input ksize strides padding data_format=None name=None"
_CONV = "input filters strides padding {} dilations=None name=None"
_CONV_T = "input filters output_shape strides padding='SAME' {} dilations=None name=None"
_PAIR = "x y message=None summarize=None name=None"
_ONE = "x message=None summarize=None name=None"
_SAMPLED = "weights biases labels inputs num_sampled num_classes num_true=1 sampled_values=None"
_SEGMENTS = "data indices segment_ids num_segments=None name=None"
# Namespace -> name -> its parameters. "own=other" after a semicolon: the parameter that version 1 calls `other`.
CHANGED: dict[str, dict[str, str]] = {
    "": {
        "argmax": "input axis=None output_type='int64' name=None",
        "argmin": "input axis=None output_type='int64' name=None",
        **{f"assert_{name}": _PAIR for name in ("equal", "greater", "less")},
        "assert_rank": "x rank message=None name=None",
        "batch_to_space": "input block_shape crops name=None",
        "boolean_mask": "tensor mask axis=None name='boolean_mask'",
        "cond": "pred true_fn=None false_fn=None name=None",
        "constant": "value dtype=None shape=None name='Const'",
        "convert_to_tensor": "value dtype=None dtype_hint=None name=None",
        "device": "device_name; device_name=device_name_or_function",
        "expand_dims": "input axis name=None",
        "gather": "params indices validate_indices=None axis=None batch_dims=0 name=None",
        "gather_nd": "params indices batch_dims=0 name=None",
        "gradients": (
            "ys xs grad_ys=None name='gradients' gate_gradients=False aggregation_method=None stop_gradients=None "
            "unconnected_gradients='none'"
        ),
        "hessians": "ys xs gate_gradients=False aggregation_method=None name='hessians'",
        "norm": "tensor ord='euclidean' axis=None keepdims=None name=None",
        "ones_like": "input dtype=None name=None; input=tensor",
        "pad": "tensor paddings mode='CONSTANT' constant_values=0 name=None",
        "random_normal_initializer": "mean=0.0 stddev=0.05 seed=None",
        "random_uniform_initializer": "minval=-0.05 maxval=0.05 seed=None",
        **{f"reduce_{name}": _REDUCTION for name in ["all", "any", "logsumexp", "max", "mean", "min", "prod", "sum"]},
        "reverse_sequence": "input seq_lengths seq_axis=None batch_axis=None name=None",
        "shape": "input out_type='int32' name=None",
        "size": "input out_type='int32' name=None",
        "space_to_batch": "input block_shape paddings name=None",
        "squeeze": "input axis=None name=None",
        "transpose": "a perm=None conjugate=False name='transpose'",
        "tuple": "tensors control_inputs=None name=None",
        "while_loop": (
            "cond body loop_vars shape_invariants=None parallel_iterations=10 back_prop=True swap_memory=False "
            "maximum_iterations=None name=None"
        ),
        "zeros_like": "input dtype=None name=None; input=tensor",
    },
    "debugging": {
        **{
            f"assert_{name}": _PAIR
            for name in ["equal", "greater", "greater_equal", "less", "less_equal", "none_equal"]
        },
        **{f"assert_{name}": _ONE for name in ["negative", "non_negative", "non_positive", "positive"]},
        "assert_all_finite": "x message name=None",
        "assert_near": "x y rtol=None atol=None message=None summarize=None name=None",
        "assert_rank": "x rank message=None name=None",
        "assert_rank_at_least": "x rank message=None name=None",
        "assert_rank_in": "x ranks message=None name=None",
        "assert_scalar": "tensor message=None name=None",
    },
    "image": {
        "crop_and_resize": "image boxes box_indices crop_size method='bilinear' extrapolation_value=0 name=None",
        "draw_bounding_boxes": "images boxes colors name=None",
    },
    "io": {
        "decode_csv": (
            "records record_defaults field_delim=',' use_quote_delim=True na_value='' select_cols=None name=None"
        ),
        "parse_example": "serialized features example_names=None name=None",
        "parse_single_example": "serialized features example_names=None name=None",
        "serialize_many_sparse": "sp_input out_type='string' name=None",
        "serialize_sparse": "sp_input out_type='string' name=None",
    },
    "linalg": {
        "l2_normalize": "x axis=None epsilon=1e-12 name=None",
        "norm": "tensor ord='euclidean' axis=None keepdims=None name=None",
    },
    "math": {
        "argmax": "input axis=None output_type='int64' name=None",
        "argmin": "input axis=None output_type='int64' name=None",
        "bincount": "arr weights=None minlength=None maxlength=None dtype='int32'",
        "confusion_matrix": "labels predictions num_classes=None weights=None dtype='int32' name=None",
        "count_nonzero": "input axis=None keepdims=None dtype='int64' name=None",
        "in_top_k": "targets predictions k name=None",
        "l2_normalize": "x axis=None epsilon=1e-12 name=None",
        "log_softmax": "logits axis=None name=None",
        **{f"reduce_{name}": _REDUCTION for name in ["all", "any", "logsumexp", "max", "mean", "min", "prod", "sum"]},
        "softmax": "logits axis=None name=None",
    },
    "nn": {
        "avg_pool": _POOL,
        "avg_pool2d": _POOL + "; input=value",
        "conv1d": "input filters stride padding data_format=None dilations=None name=None",
        "conv2d": _CONV.format("data_format='NHWC'"),
        "conv2d_transpose": _CONV_T.format("data_format='NHWC'"),
        "conv3d": _CONV.format("data_format='NDHWC'"),
        "conv3d_transpose": _CONV_T.format("data_format='NDHWC'") + "; input=value",
        "convolution": "input filters strides=None padding='VALID' data_format=None dilations=None name=None",
        "crelu": "features axis=-1 name=None",
        "depth_to_space": "input block_size data_format='NHWC' name=None",
        "depthwise_conv2d": "input filter strides padding data_format=None dilations=None name=None",
        "dropout": "x rate noise_shape=None seed=None name=None",
        "in_top_k": "targets predictions k name=None",
        "l2_normalize": "x axis=None epsilon=1e-12 name=None",
        "log_softmax": "logits axis=None name=None",
        "max_pool": _POOL,
        "moments": "x axes shift=None keepdims=False name=None",
        "nce_loss": f"{_SAMPLED} remove_accidental_hits=False name='nce_loss'",
        "pool": (
            "input window_shape pooling_type strides=None padding='VALID' data_format=None dilations=None name=None"
        ),
        "sampled_softmax_loss": f"{_SAMPLED} remove_accidental_hits=True seed=None name='sampled_softmax_loss'",
        "separable_conv2d": (
            "input depthwise_filter pointwise_filter strides padding data_format=None dilations=None name=None"
        ),
        "sigmoid_cross_entropy_with_logits": "labels=None logits=None name=None",
        "softmax": "logits axis=None name=None",
        "softmax_cross_entropy_with_logits": "labels logits axis=-1 name=None",
        "space_to_batch": "input block_shape paddings name=None",
        "space_to_depth": "input block_size data_format='NHWC' name=None",
        "sparse_softmax_cross_entropy_with_logits": "labels logits name=None",
        "sufficient_statistics": "x axes shift=None keepdims=False name=None",
        "weighted_cross_entropy_with_logits": "labels logits pos_weight name=None",
        "weighted_moments": "x axes frequency_weights keepdims=False name=None",
    },
    "random": {"poisson": "shape lam dtype='float32' seed=None name=None"},
    "sparse": {f"segment_{name}": _SEGMENTS for name in ("mean", "sqrt_n", "sum")},
    "summary": {
        "audio": "name data sample_rate step=None max_outputs=3; data=tensor",
        "histogram": "name data step=None; data=tensor",
        "image": "name data step=None max_outputs=3; data=tensor max_outputs=max_images",
    },
    "strings": {
        "length": "input unit='BYTE' name=None",
        "reduce_join": "inputs axis=None keepdims=False separator='' name=None",
        "substr": "input pos len unit='BYTE' name=None",
        "to_hash_bucket": "input num_buckets name=None",
        "to_number": "input out_type='float32' name=None",
    },
}
_VARIABLE_PARAMETERS = (
    "initial_value=None trainable=None validate_shape=True caching_device=None name=None variable_def=None dtype=None "
    "import_scope=None constraint=None synchronization=None aggregation=None shape=None"
)
# What version 1 has only under another name.
_FUNCTIONS = {
    **{name: f"keras.{name}" for name in ("losses", "metrics", "optimizers")},
    **{f"initializers.{name}": f"keras.initializers.{name}" for name in ("deserialize", "get", "serialize")},
    **{
        f"summary.{name}": f"train.contrib_summary.{name}_2"
        for name in ("audio", "create_file_writer", "histogram", "image", "scalar", "text")
    },
    **{f"summary.{name}": f"train.contrib_summary.{name}" for name in ("create_noop_writer", "record_if", "write")},
    **{f"summary.{name}": f"contrib.summary.{name}" for name in ("SummaryWriter", "flush")},
    **{
        f"summary.experimental.{name}": f"train.contrib_summary.{name}"
        for name in ("get_step", "set_step", "summary_scope")
    },
    "nn.avg_pool": "nn.avg_pool_v2",
    "random.set_seed": "set_random_seed",
    "nn.max_pool": "nn.max_pool_v2",
    "nn.nce_loss": "compat.ops_names.nce_loss_v2",
    "nn.sampled_softmax_loss": "compat.ops_names.sampled_softmax_loss_v2",
    "nn.softmax_cross_entropy_with_logits": "nn.softmax_cross_entropy_with_logits_v2",
    "test.compute_gradient": "compat.test_functions.compute_gradient_v2",
    "where": "where_v2",
}


def names() -> dict[str, list[str]]:
    """Namespace below ``tf.compat.v2`` -> its names, as far as this module makes them."""
    spaces = {*SAME, *CHANGED}
    return {space: sorted({*SAME.get(space, "").split(), *CHANGED.get(space, ())}) for space in sorted(spaces)}


def value(space: str, name: str) -> Any:
    """What ``tf.compat.v2.<space>.<name>`` is; raises KeyError for an unknown name."""
    dotted = f"{space}.{name}" if space else name
    text = CHANGED.get(space, {}).get(name)
    if text is not None:
        return adapted(_version_1(_FUNCTIONS.get(dotted, dotted)), name, text)
    if name not in SAME.get(space, "").split():
        raise KeyError(name)
    if dotted == "Variable":
        return _variable()
    if dotted == "keras":
        return import_module(f"{ROOT}.compat.tf_keras.names").version_2()
    return _version_1(_FUNCTIONS.get(dotted, dotted))


@cache
def _variable() -> type:
    """``tf.compat.v2.Variable``, which makes resource variables; every variable is an instance."""
    base = import_module(f"{ROOT}.ops.variables.base")

    class Kind(base.VariableMetaclass):  # type: ignore[name-defined]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return base.Variable(use_resource=True, **_VARIABLE.bind(*args, **kwargs).arguments)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, base.Variable)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, base.Variable)

    return Kind("Variable", (base.Variable,), {"__doc__": _variable.__doc__})


def _version_1(dotted: str) -> Any:
    space, _, name = dotted.rpartition(".")
    if space.startswith("keras"):
        return import_module(f"{ROOT}.compat.tf_keras.names").find(space, name)
    return getattr(import_module(f"{ROOT}.{space}" if space else ROOT), name)


def adapted(function: Callable[..., Any], name: str, text: str) -> Callable[..., Any]:
    """A function with other parameters that calls ``function`` by keywords; ``text`` is of the form of `CHANGED`."""
    listed, _, renames = text.partition(";")
    renamed = dict(pair.split("=") for pair in renames.split())
    signature = Signature([_parameter(one) for one in listed.split()])

    def version_2(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        return function(**{renamed.get(key, key): item for key, item in given.items()})

    version_2.__name__ = version_2.__qualname__ = name
    version_2.__doc__ = f"`{function.__name__}` with the arguments of TensorFlow 2 (``tf.compat.v2``)."
    vars(version_2)["__signature__"] = signature
    return version_2


def _parameter(text: str) -> Parameter:
    name, _, default = text.partition("=")
    literal = ast.literal_eval(default) if default else Parameter.empty
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=literal)


_VARIABLE = Signature([_parameter(one) for one in _VARIABLE_PARAMETERS.split()])
