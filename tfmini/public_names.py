"""The table of TensorFlow's public names and their home modules, which `tfmini.namespace` installs.

Public namespace ("" is ``tf`` itself, "nn" is ``tf.nn``) -> home module (relative to ``tfmini``) -> names,
separated by blanks; ``public=attribute`` if the attribute has another name. It is written by hand: a new public
function gets its name here. ``make names`` writes the names that result to ``tests/public_names.txt``, and a test
compares the two, so that no name comes or goes unnoticed.
"""

from __future__ import annotations

NAMES: dict[str, dict[str, str]] = {
    "": {
        "_version": "COMPILER_VERSION CXX11_ABI_FLAG GIT_VERSION MONOLITHIC_BUILD VERSION=API_VERSION",
        "compat.py_function": "py_function",
        "compat.behavior": (
            "control_flow_v2_enabled disable_control_flow_v2 disable_eager_execution disable_tensor_equality "
            "disable_v2_behavior disable_v2_tensorshape executing_eagerly"
        ),
        "compat.tf_logging": "get_logger",
        "devices": "DeviceSpec",
        "dimension": "Dimension dimension_value",
        "dtypes": (
            "DType QUANTIZED_DTYPES as_dtype bfloat16 bool complex128 complex64 double float16 float32 "
            "float64 half int16 int32 int64 int8 qint16 qint32 qint8 quint16 quint8 resource string uint16 "
            "uint32 uint64 uint8 variant"
        ),
        "errors": "OpError",
        "graph.conversion": (
            "IndexedSlices convert_to_tensor convert_to_tensor_or_indexed_slices "
            "register_tensor_conversion_function"
        ),
        "graph.default_graph": "get_default_graph reset_default_graph",
        "graph.default_session": "get_default_session",
        "graph.graph": "Graph",
        "graph.graph_def": "GRAPH_DEF_VERSION GRAPH_DEF_VERSION_MIN_CONSUMER GRAPH_DEF_VERSION_MIN_PRODUCER",
        "graph.importing": "import_graph_def",
        "graph.keys": "GraphKeys",
        "graph.operation": "Operation Tensor",
        "inspection.api": "inspect",
        "ops.queues.accumulators": "ConditionalAccumulator ConditionalAccumulatorBase SparseConditionalAccumulator",
        "ops.array.blocks": (
            "batch_to_space batch_to_space_nd depth_to_space space_to_batch space_to_batch_nd space_to_depth"
        ),
        "ops.array.diagonals": (
            "diag diag_part eye matrix_band_part matrix_diag matrix_diag_part matrix_set_diag"
        ),
        "ops.array.filling": "fill lin_space linspace ones ones_like range zeros zeros_like",
        "ops.array.gather": "batch_gather gather gather_nd",
        "ops.array.identity": (
            "check_numerics ensure_shape guarantee_const identity identity_n is_tensor placeholder "
            "placeholder_with_default stop_gradient"
        ),
        "ops.array.joining": "concat stack unstack",
        "ops.array.splitting": "split",
        "ops.array.layout": "meshgrid repeat reverse reverse_sequence reverse_v2 roll tile",
        "ops.array.masking": "boolean_mask sequence_mask where",
        "ops.array.padding": "pad",
        "ops.array.parallel_stack": "parallel_stack",
        "ops.array.partition": "dynamic_partition dynamic_stitch",
        "ops.array.scatter": (
            "scatter_nd tensor_scatter_add tensor_scatter_nd_add tensor_scatter_nd_sub "
            "tensor_scatter_nd_update tensor_scatter_sub tensor_scatter_update"
        ),
        "ops.math.search": "argsort histogram_fixed_width histogram_fixed_width_bins searchsorted sort",
        "ops.array.index_sets": "invert_permutation one_hot setdiff1d unique unique_with_counts unravel_index",
        "ops.array.shape": (
            "broadcast_dynamic_shape broadcast_static_shape broadcast_to expand_dims rank reshape shape "
            "shape_n size squeeze"
        ),
        "ops.array.slicing": "newaxis slice strided_slice",
        "ops.array.transpose": "matrix_transpose transpose",
        "ops.debugging.assertion": "Assert",
        "ops.queues.barrier": "Barrier",
        "ops.flow.case": "case switch_case",
        "ops.array.casting": (
            "bitcast cast saturate_cast to_bfloat16 to_complex128 to_complex64 to_double to_float to_int32 "
            "to_int64"
        ),
        "ops.debugging.value_checks": (
            "assert_equal assert_greater assert_greater_equal assert_integer assert_less assert_less_equal "
            "assert_near assert_negative assert_non_negative assert_non_positive assert_none_equal "
            "assert_positive assert_proper_iterable assert_same_float_dtype assert_type is_numeric_tensor"
        ),
        "ops.math.clip": "clip_by_average_norm clip_by_global_norm clip_by_norm clip_by_value global_norm",
        "ops.clock": "timestamp",
        "ops.flow.cond": "cond",
        "layers.metrics.confusion_matrix": "confusion_matrix",
        "ops.array.constant": "constant",
        "ops.array.constant_value": "get_static_value",
        "ops.control": "group no_op tuple",
        "ops.queues.critical_section": "CriticalSection",
        "ops.io.csv_ops": "decode_compressed decode_csv",
        "ops.gradients.custom_gradient": "custom_gradient grad_pass_through recompute_grad",
        "ops.io.file_ops": "matching_files read_file write_file",
        "ops.flow.functional": "foldl foldr map_fn scan vectorized_map",
        "ops.gradients.registry": "NoGradient NotDifferentiable RegisterGradient no_gradient",
        "ops.gradients.sums": "AggregationMethod UnconnectedGradients",
        "ops.gradients.backprop": "gradients hessians",
        "ops.image.patches": "extract_image_patches",
        "ops.variables.initializers": (
            "constant_initializer glorot_normal_initializer glorot_uniform_initializer ones_initializer "
            "orthogonal_initializer random_normal_initializer random_uniform_initializer "
            "truncated_normal_initializer uniform_unit_scaling_initializer variance_scaling_initializer "
            "zeros_initializer"
        ),
        "ops.linalg.decompositions": "cholesky cholesky_solve qr self_adjoint_eig self_adjoint_eigvals svd",
        "ops.linalg.functions": "norm trace",
        "ops.linalg.matrix_functions": "matrix_square_root=sqrtm",
        "ops.linalg.solving": (
            "matrix_determinant matrix_inverse matrix_solve matrix_solve_ls matrix_triangular_solve"
        ),
        "ops.debugging.logging_ops": "Print print=print_v2",
        "ops.math.comparison": (
            "equal greater greater_equal less less_equal logical_and logical_not logical_or logical_xor "
            "not_equal where_v2"
        ),
        "ops.math.complex": "abs angle complex imag real",
        "ops.math.contraction": "einsum tensordot",
        "ops.math.elementwise": (
            "add conj div div_no_nan divide floor_div floordiv floormod maximum minimum mod multiply negative "
            "realdiv scalar_mul squared_difference subtract truediv truncatediv truncatemod"
        ),
        "ops.math.matmul": "cross matmul sparse_matmul",
        "ops.math.powers": "atan2 pow",
        "ops.math.reductions": "cumprod cumsum",
        "ops.math.segments": (
            "segment_max segment_mean segment_min segment_prod segment_sum unsorted_segment_max "
            "unsorted_segment_mean unsorted_segment_min unsorted_segment_prod unsorted_segment_sqrt_n "
            "unsorted_segment_sum"
        ),
        "ops.math.sparse_segments": "sparse_segment_mean sparse_segment_sqrt_n sparse_segment_sum",
        "ops.math.special": "betainc igamma igammac lbeta",
        "ops.math.sums": "accumulate_n add_n",
        "ops.math.unary": (
            "acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc exp expm1 floor is_finite is_inf "
            "is_nan lgamma log log1p log_sigmoid polygamma reciprocal rint round rsqrt sigmoid sign sin sinh "
            "sqrt square tan tanh zeta"
        ),
        "ops.nn.dilated": "required_space_to_batch_paddings",
        "ops.debugging.check_numerics": "add_check_numerics_ops verify_tensor_all_finite",
        "ops.io.parsing_functions": (
            "FixedLenFeature FixedLenSequenceFeature SparseFeature VarLenFeature decode_json_example "
            "parse_example parse_single_example parse_single_sequence_example parse_tensor serialize_tensor"
        ),
        "ops.variables.partitioners": (
            "create_partitioned_variables fixed_size_partitioner min_max_variable_partitioner "
            "variable_axis_size_partitioner"
        ),
        "ops.queues.queues": "FIFOQueue PaddingFIFOQueue PriorityQueue QueueBase RandomShuffleQueue",
        "ops.ragged.ragged_tensor": "RaggedTensor",
        "ops.random.functions": (
            "multinomial random_crop random_gamma random_normal random_poisson random_shuffle random_uniform "
            "truncated_normal"
        ),
        "ops.debugging.rank_checks": "assert_rank assert_rank_at_least assert_rank_in assert_scalar",
        "ops.io.readers": (
            "FixedLengthRecordReader IdentityReader ReaderBase TFRecordReader TextLineReader WholeFileReader"
        ),
        "ops.math.reduce_functions": (
            "arg_max arg_min argmax argmin bincount count_nonzero reduce_all reduce_any reduce_logsumexp "
            "reduce_max reduce_mean reduce_min reduce_prod reduce_sum"
        ),
        "graph.scoping": (
            "add_to_collection add_to_collections colocate_with container control_dependencies device "
            "get_collection get_collection_ref get_seed init_scope name_scope op_scope set_random_seed"
        ),
        "ops.py_func": "numpy_function py_func",
        "ops.session_tensors": "delete_session_tensor get_session_handle get_session_tensor",
        "ops.sparse.set_operations": "edit_distance",
        "ops.debugging.shape_checks": "is_non_decreasing is_strictly_increasing",
        "ops.sparse.arithmetic": (
            "sparse_add sparse_maximum sparse_minimum sparse_reduce_max sparse_reduce_max_sparse "
            "sparse_reduce_sum sparse_reduce_sum_sparse sparse_softmax sparse_tensor_dense_matmul"
        ),
        "ops.sparse.functions": (
            "sparse_concat sparse_fill_empty_rows sparse_mask sparse_merge sparse_placeholder sparse_reorder "
            "sparse_reset_shape sparse_reshape sparse_retain sparse_slice sparse_split sparse_tensor_to_dense "
            "sparse_to_dense sparse_to_indicator sparse_transpose"
        ),
        "ops.sparse.serialization": "deserialize_many_sparse serialize_many_sparse serialize_sparse",
        "ops.sparse.sparse_tensor": "SparseTensor SparseTensorValue convert_to_tensor_or_sparse_tensor",
        "ops.math.spectral": "fft fft2d fft3d ifft ifft2d ifft3d",
        "ops.variables.assignment": (
            "assign assign_add assign_sub batch_scatter_update count_up_to is_variable_initialized "
            "scatter_add scatter_div scatter_max scatter_min scatter_mul scatter_nd_add scatter_nd_sub "
            "scatter_nd_update scatter_sub scatter_update"
        ),
        "ops.strings.conversions": "as_string decode_raw reduce_join string_to_number",
        "ops.strings.pieces": (
            "fingerprint string_split string_to_hash_bucket string_to_hash_bucket_fast "
            "string_to_hash_bucket_strong"
        ),
        "ops.strings.elementwise": "decode_base64 encode_base64 regex_replace string_join string_strip substr",
        "ops.tables.functions": "initialize_all_tables tables_initializer",
        "ops.variables.template": "make_template",
        "ops.flow.tensor_array": "TensorArray",
        "ops.array.tensor_protos": "make_ndarray make_tensor_proto",
        "ops.type_specs": "IndexedSlicesSpec SparseTensorSpec TensorSpec TypeSpec",
        "ops.variables.base": "Variable",
        "ops.variables.scope_defaults": "VariableScope",
        "ops.variables.kind": (
            "VariableAggregation VariableSynchronization disable_resource_variables enable_resource_variables "
            "resource_variables_enabled variable_creator_scope"
        ),
        "ops.variables.scope": (
            "get_local_variable get_variable get_variable_scope no_regularizer variable_op_scope "
            "variable_scope"
        ),
        "ops.variables.store": "AUTO_REUSE",
        "ops.variables.functions": (
            "all_variables assert_variables_initialized global_variables global_variables_initializer "
            "initialize_all_variables initialize_local_variables initialize_variables local_variables "
            "local_variables_initializer model_variables moving_average_variables "
            "report_uninitialized_variables trainable_variables variables_initializer"
        ),
        "ops.flow.while_loop": "while_loop",
        "protos": (
            "AttrValue ConfigProto Event GPUOptions GraphDef GraphOptions HistogramProto LogMessage "
            "MetaGraphDef NameAttrList NodeDef OptimizerOptions RunMetadata RunOptions SessionLog Summary "
            "SummaryMetadata TensorInfo"
        ),
        "runtime.client.session": "InteractiveSession Session",
        "shapes": "TensorShape dimension_at_index",
    },
    "app": {
        "compat.app": "run",
    },
    "bitwise": {
        "ops.math.bitwise": "bitwise_and bitwise_or bitwise_xor invert left_shift right_shift",
    },
    "collective_ops": {
        "ops.collectives": "all_gather all_reduce broadcast_recv broadcast_send",
    },
    "compat": {
        "compat.dimensions": (
            "dimension_at_index dimension_value forward_compatibility_horizon forward_compatible"
        ),
        "compat.text": (
            "as_bytes as_str as_str_any as_text bytes_or_text_types complex_types integral_types path_to_str "
            "real_types"
        ),
    },
    "compat.v2": {
        "devices": "DeviceSpec=DeviceSpecV2",
        "graph.scoping": "name_scope=name_scope_v2",
    },
    "compat.v2.nn": {
        "ops.nn.embedding": "safe_embedding_lookup_sparse=safe_embedding_lookup_sparse_v2",
    },
    "contrib.checkpoint": {
        "train.checkpointing.checkpoint_manager": "CheckpointManager",
        "train.checkpointing.object_graph": "Checkpointable=Trackable",
    },
    "contrib.crf": {
        "layers.contrib.crf": (
            "crf_binary_score crf_decode crf_log_likelihood crf_log_norm crf_sequence_score crf_unary_score "
            "viterbi_decode"
        ),
    },
    "contrib.data": {
        "data.csv_datasets": "CsvDataset make_csv_dataset",
        "data.dataset": "Dataset",
        "data.example_datasets": "make_batched_features_dataset parse_example_dataset",
        "data.file_datasets": "FixedLengthRecordDataset TFRecordDataset TextLineDataset",
        "data.grouping": "Reducer bucket_by_sequence_length group_by_reducer group_by_window",
        "data.iterator": "Iterator",
        "data.optional": "Optional get_next_as_optional",
        "data.options": "AUTOTUNE",
        "data.transformations": (
            "Counter RandomDataset batch_and_drop_remainder enumerate_dataset get_single_element "
            "ignore_errors map_and_batch padded_batch_and_drop_remainder parallel_interleave "
            "prefetch_to_device scan shuffle_and_repeat unbatch"
        ),
        "data.record_writers": "TFRecordWriter",
        "data.selection": "choose_from_datasets dense_to_sparse_batch sample_from_datasets take_while unique",
    },
    "contrib.estimator": {
        "estimator.early_stopping": (
            "make_early_stopping_hook stop_if_higher_hook stop_if_lower_hook stop_if_no_decrease_hook "
            "stop_if_no_increase_hook"
        ),
        "estimator.evaluation_records": "read_eval_metrics",
        "estimator.serving_inputs": "build_raw_supervised_input_receiver_fn",
    },
    "contrib.framework": {
        "layers.contrib.arg_scope": (
            "add_arg_scope arg_scope arg_scope_func_key arg_scoped_arguments current_arg_scope has_arg_scope"
        ),
        "layers.contrib.model_variables": (
            "add_model_variable filter_variables get_local_variables get_model_variables "
            "get_trainable_variables get_unique_variable get_variable_full_name get_variables "
            "get_variables_by_name get_variables_by_suffix get_variables_to_restore global_variable "
            "local_variable model_variable variable"
        ),
        "ops.flow.cond": "smart_cond smart_constant_value",
        "ops.type_specs": "TensorSpec",
        "placement.variable_device_chooser": "VariableDeviceChooser",
        "train.checkpointing.assign_from_checkpoint": (
            "assign_from_checkpoint assign_from_checkpoint_fn assign_from_values assign_from_values_fn"
        ),
        "train.checkpointing.init_from_checkpoint": "init_from_checkpoint",
        "train.checkpointing.reader": "list_variables load_checkpoint load_variable",
        "train.global_steps": (
            "assert_global_step create_global_step get_global_step get_or_create_global_step"
        ),
    },
    "contrib.framework.nest": {
        "graph.nest": "assert_same_structure flatten is_sequence=is_nested map_structure pack_sequence_as",
        "compat.nest_names": (
            "assert_shallow_structure flatten_dict_items flatten_up_to flatten_with_joined_string_paths "
            "flatten_with_tuple_paths map_structure_up_to map_structure_with_paths map_structure_with_tuple_paths "
            "yield_flattened_paths"
        ),
    },
    "contrib.layers": {
        "layers.contrib.batch_norm": "batch_norm",
        "layers.contrib.embeddings": (
            "bow_encoder dense_to_sparse embed_sequence embedding_lookup_unique maxout scale_gradient"
        ),
        "layers.contrib.layers": (
            "bias_add conv1d conv3d convolution convolution1d convolution3d "
            "conv2d conv2d_transpose convolution2d convolution2d_transpose fully_connected "
            "elu layer_norm linear relu6 relu=fully_connected separable_conv2d=separable_convolution2d "
            "separable_convolution2d"
        ),
        "layers.contrib.normalization": "group_norm instance_norm",
        "layers.contrib.weightless_layers": (
            "avg_pool2d avg_pool3d dropout flatten max_pool2d max_pool3d one_hot_encoding pool repeat softmax "
            "stack unit_norm"
        ),
        "layers.contrib.summaries": (
            "summarize_activation summarize_activations summarize_biases summarize_collection "
            "summarize_tensor summarize_tensors summarize_variables summarize_weights"
        ),
        "layers.contrib.regularizers": (
            "apply_regularization l1_l2_regularizer l1_regularizer l2_regularizer sum_regularizer "
            "variance_scaling_initializer xavier_initializer xavier_initializer_conv2d"
        ),
        "ops.nn.embedding": "safe_embedding_lookup_sparse",
        "train.loops.optimize_loss": "OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES optimize_loss",
    },
    "contrib.layers.summaries": {
        "layers.contrib.summaries": (
            "summarize_activation summarize_activations summarize_biases summarize_collection "
            "summarize_tensor summarize_tensors summarize_variables summarize_weights"
        ),
    },
    "contrib.layers.utils": {
        "layers.contrib.named_outputs": (
            "append_tensor_alias collect_named_outputs constant_value convert_collection_to_dict "
            "first_dimension gather_tensors_aliases get_tensor_aliases last_dimension n_positive_integers "
            "smart_cond two_element_tuple"
        ),
    },
    "contrib.learn": {
        "estimator.task_environment": "TaskType",
        "compat.learn_names": "ModeKeys=LearnModeKeys",
    },
    "contrib.learn.preprocessing": {
        "compat.learn_names": "ByteProcessor CategoricalVocabulary VocabularyProcessor tokenizer",
    },
    "contrib.learn.datasets": {
        "compat.learn_data": "load_dataset",
    },
    "contrib.learn.datasets.base": {
        "compat.learn_data": "load_csv_with_header load_csv_without_header",
        "compat.mnist_data": "Dataset Datasets maybe_download",
    },
    "contrib.learn.datasets.mnist": {
        "compat.mnist_data": (
            "DataSet Datasets dense_to_one_hot extract_images extract_labels load_mnist maybe_download "
            "read_data_sets"
        ),
    },
    "contrib.legacy_seq2seq": {
        "layers.contrib.sequence_losses": "rnn_decoder sequence_loss=sequence_loss_of_steps sequence_loss_by_example",
    },
    "contrib.lookup": {
        "ops.tables.initializers": (
            "KeyValueTensorInitializer TableInitializerBase TextFileIdTableInitializer TextFileIndex "
            "TextFileInitializer TextFileStringTableInitializer"
        ),
        "ops.tables.functions": "HashTable InitializableLookupTableBase LookupInterface",
        "ops.tables.vocabulary_tables": (
            "FastHashSpec HasherSpec IdTableWithHashBuckets StrongHashSpec index_table_from_file "
            "index_table_from_tensor index_to_string index_to_string_table_from_file "
            "index_to_string_table_from_tensor string_to_index"
        ),
        "train.checkpointing.saved_tables": "MutableDenseHashTable=DenseHashTable MutableHashTable",
    },
    "contrib.losses": {
        "layers.loss_reduction": (
            "add_loss compute_weighted_loss get_losses get_regularization_losses get_total_loss"
        ),
        "layers.losses": (
            "absolute_difference cosine_distance hinge_loss log_loss mean_pairwise_squared_error "
            "mean_squared_error sigmoid_cross_entropy softmax_cross_entropy sparse_softmax_cross_entropy"
        ),
    },
    "contrib.metrics": {
        "layers.contrib.metrics": (
            "accuracy aggregate_metric_map aggregate_metrics streaming_accuracy streaming_auc "
            "streaming_false_negatives streaming_false_positives streaming_mean streaming_mean_absolute_error "
            "streaming_mean_cosine_distance streaming_mean_iou streaming_mean_relative_error "
            "streaming_mean_squared_error streaming_mean_tensor streaming_percentage_less streaming_precision "
            "streaming_precision_at_thresholds streaming_recall streaming_recall_at_thresholds "
            "streaming_root_mean_squared_error streaming_sensitivity_at_specificity "
            "streaming_sparse_average_precision_at_k streaming_sparse_precision_at_k "
            "streaming_sparse_recall_at_k streaming_specificity_at_sensitivity streaming_true_negatives "
            "streaming_true_positives"
        ),
    },
    "contrib.nn": {
        "layers.contrib.nn_functions": (
            "alpha_dropout deprecated_flipped_sigmoid_cross_entropy_with_logits "
            "deprecated_flipped_softmax_cross_entropy_with_logits "
            "deprecated_flipped_sparse_softmax_cross_entropy_with_logits scaled_softplus"
        ),
        "ops.math.topk": "nth_element",
    },
    "contrib.rnn": {
        "layers.contrib.nas_cell": "NASCell",
        "compat.rnn_names": "LayerRNNCell best_effort_input_batch_size transpose_batch_time",
        "layers.contrib.rnn": (
            "EmbeddingWrapper GRUBlockCellV2 InputProjectionWrapper LSTMBlockCell LayerNormBasicLSTMCell "
            "OutputProjectionWrapper stack_bidirectional_dynamic_rnn"
        ),
        "layers.rnn.unrolling": "static_bidirectional_rnn static_rnn",
        "layers.rnn.cells": "BasicLSTMCell BasicRNNCell GRUCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell",
        "layers.rnn.cell_wrappers": "DeviceWrapper DropoutWrapper ResidualWrapper",
    },
    "contrib.seq2seq": {
        "layers.contrib.attention": (
            "AttentionMechanism AttentionWrapper AttentionWrapperState BahdanauAttention LuongAttention hardmax "
            "tile_batch"
        ),
        "layers.contrib.decoders": "BasicDecoder BasicDecoderOutput Decoder dynamic_decode",
        "layers.contrib.decoding_helpers": (
            "CustomHelper GreedyEmbeddingHelper Helper InferenceHelper SampleEmbeddingHelper "
            "ScheduledEmbeddingTrainingHelper ScheduledOutputTrainingHelper TrainingHelper"
        ),
        "layers.contrib.sequence_losses": "sequence_loss",
    },
    "contrib.slim": {
        "layers.contrib.arg_scope": (
            "add_arg_scope arg_scope arg_scope_func_key arg_scoped_arguments current_arg_scope has_arg_scope"
        ),
        "layers.contrib.batch_norm": "batch_norm",
        "layers.contrib.embeddings": "maxout scale_gradient",
        "layers.contrib.layers": (
            "bias_add conv1d conv3d convolution convolution1d convolution3d "
            "conv2d conv2d_transpose convolution2d convolution2d_transpose fully_connected "
            "layer_norm linear separable_conv2d=separable_convolution2d separable_convolution2d"
        ),
        "layers.contrib.normalization": "group_norm instance_norm",
        "layers.contrib.weightless_layers": (
            "avg_pool2d avg_pool3d dropout flatten max_pool2d max_pool3d one_hot_encoding pool repeat softmax "
            "stack unit_norm"
        ),
        "layers.contrib.model_variables": (
            "add_model_variable filter_variables get_local_variables get_model_variables "
            "get_trainable_variables get_unique_variable get_variable_full_name get_variables "
            "get_variables_by_name get_variables_by_suffix get_variables_to_restore global_variable "
            "local_variable model_variable variable"
        ),
        "layers.contrib.regularizers": (
            "apply_regularization l1_l2_regularizer l1_regularizer l2_regularizer "
            "variance_scaling_initializer xavier_initializer"
        ),
        "train.checkpointing.assign_from_checkpoint": (
            "assign_from_checkpoint assign_from_checkpoint_fn assign_from_values assign_from_values_fn"
        ),
        "train.global_steps": (
            "assert_global_step create_global_step get_global_step get_or_create_global_step"
        ),
    },
    "contrib.slim.evaluation": {
        "train.checkpointing.polling": "checkpoints_iterator wait_for_new_checkpoint",
        "train.loops.evaluation": "evaluate_once=slim_evaluate_once evaluation_loop",
    },
    "contrib.slim.initializers": {
        "layers.contrib.regularizers": "variance_scaling_initializer xavier_initializer xavier_initializer_conv2d",
    },
    "contrib.slim.layers": {
        "layers.contrib.batch_norm": "batch_norm",
        "layers.contrib.embeddings": (
            "bow_encoder dense_to_sparse embed_sequence embedding_lookup_unique maxout scale_gradient"
        ),
        "layers.contrib.layers": (
            "bias_add conv1d conv3d convolution convolution1d convolution3d "
            "conv2d conv2d_transpose convolution2d convolution2d_transpose fully_connected "
            "elu layer_norm linear relu6 separable_conv2d=separable_convolution2d separable_convolution2d"
        ),
        "layers.contrib.normalization": "group_norm instance_norm",
        "layers.contrib.weightless_layers": (
            "avg_pool2d avg_pool3d dropout flatten max_pool2d max_pool3d one_hot_encoding pool repeat softmax "
            "stack unit_norm"
        ),
        "train.loops.optimize_loss": "OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES optimize_loss",
    },
    "contrib.slim.learning": {
        "train.loops.slim_learning": "train train_step",
        "train.loops.train_ops": (
            "add_gradients_summaries clip_gradient_norms create_train_op=create_slim_train_op "
            "multiply_gradients"
        ),
    },
    "contrib.slim.model_analyzer": {
        "layers.contrib.model_analyzer": "analyze_ops analyze_vars tensor_description",
    },
    "contrib.slim.regularizers": {
        "layers.contrib.regularizers": (
            "apply_regularization l1_l2_regularizer l1_regularizer l2_regularizer sum_regularizer"
        ),
    },
    "contrib.slim.summaries": {
        "layers.contrib.summaries": (
            "add_histogram_summaries add_histogram_summary add_image_summaries add_image_summary "
            "add_scalar_summaries add_scalar_summary add_zero_fraction_summaries add_zero_fraction_summary"
        ),
    },
    "contrib.staging": {
        "ops.queues.staging": "MapStagingArea StagingArea",
    },
    "contrib.summary": {
        "train.summaries.contrib_summary": (
            "SummaryWriter all_summary_ops always_record_summaries audio create_file_writer "
            "create_summary_file_writer=create_file_writer flush generic graph histogram image import_event "
            "initialize never_record_summaries record_summaries_every_n_global_steps scalar "
            "should_record_summaries summary_writer_initializer_op"
        ),
    },
    "contrib.training": {
        "compat.hparams": "HParams parse_values",
        "placement.device_setter": "GreedyLoadBalancingStrategy RandomStrategy byte_size_load_fn",
        "train.checkpointing.polling": "checkpoints_iterator wait_for_new_checkpoint",
        "train.loops.evaluation": (
            "StopAfterNEvalsHook SummaryAtEndHook evaluate_once evaluate_repeatedly get_or_create_eval_step"
        ),
        "train.loops.slim_learning": "train=train_with_hooks",
        "train.loops.train_ops": (
            "add_gradients_summaries clip_gradient_norms clip_gradient_norms_fn create_train_op "
            "multiply_gradients"
        ),
    },
    "contrib.util": {
        "ops.array.constant_value": "constant_value=get_static_value",
        "ops.array.tensor_protos": "make_ndarray make_tensor_proto",
    },
    "data": {
        "data.dataset": "Dataset",
        "data.file_datasets": "FixedLengthRecordDataset TFRecordDataset TextLineDataset",
        "data.iterator": (
            "Iterator get_output_classes get_output_shapes get_output_types make_initializable_iterator "
            "make_one_shot_iterator"
        ),
        "data.options": "Options",
    },
    "data.experimental": {
        "data.cardinality": "INFINITE_CARDINALITY=INFINITE UNKNOWN_CARDINALITY=UNKNOWN",
        "data.csv_datasets": "CsvDataset make_csv_dataset",
        "data.example_datasets": "make_batched_features_dataset parse_example_dataset",
        "data.grouping": "Reducer bucket_by_sequence_length group_by_reducer group_by_window",
        "data.optional": "Optional get_next_as_optional",
        "data.options": "AUTOTUNE OptimizationOptions ThreadingOptions",
        "data.transformations": (
            "Counter RandomDataset cardinality copy_to_device enumerate_dataset get_single_element "
            "ignore_errors map_and_batch map_and_batch_with_legacy_function parallel_interleave "
            "prefetch_to_device scan shuffle_and_repeat unbatch"
        ),
        "data.record_writers": "TFRecordWriter",
        "data.selection": "choose_from_datasets dense_to_sparse_batch sample_from_datasets take_while unique",
    },
    "debugging": {
        "ops.array.identity": "check_numerics",
        "ops.debugging.assertion": "Assert",
        "ops.debugging.value_checks": (
            "assert_equal assert_greater assert_greater_equal assert_integer assert_less assert_less_equal "
            "assert_near assert_negative assert_non_negative assert_non_positive assert_none_equal "
            "assert_positive assert_proper_iterable assert_same_float_dtype assert_type is_numeric_tensor"
        ),
        "ops.math.unary": "is_finite is_inf is_nan",
        "ops.debugging.check_numerics": "assert_all_finite=verify_tensor_all_finite",
        "ops.debugging.rank_checks": "assert_rank assert_rank_at_least assert_rank_in assert_scalar",
        "ops.debugging.shape_checks": "assert_shapes is_non_decreasing is_strictly_increasing",
    },
    "distributions": {
        "layers.distributions.continuous": "Beta Exponential Gamma Laplace Normal StudentT Uniform",
        "layers.distributions.dirichlet": "Dirichlet",
        "layers.distributions.discrete": "Bernoulli Categorical Multinomial",
        "layers.distributions.distribution": (
            "Distribution FULLY_REPARAMETERIZED NOT_REPARAMETERIZED RegisterKL ReparameterizationType kl_divergence"
        ),
    },
    "distribute": {
        "runtime.server": "Server",
        "train.strategy": (
            "MirroredStrategy OneDeviceStrategy ReduceOp ReplicaContext Strategy get_replica_context "
            "get_strategy has_strategy in_cross_replica_context"
        ),
    },
    "distribute.cluster_resolver": {
        "train.cluster_resolver": (
            "ClusterResolver KubernetesClusterResolver SimpleClusterResolver TFConfigClusterResolver "
            "UnionResolver=UnionClusterResolver"
        ),
        "train.slurm_cluster_resolver": "SlurmClusterResolver",
    },
    "dtypes": {
        "dtypes": (
            "DType QUANTIZED_DTYPES as_dtype bfloat16 bool complex128 complex64 double float16 float32 "
            "float64 half int16 int32 int64 int8 qint16 qint32 qint8 quint16 quint8 resource string uint16 "
            "uint32 uint64 uint8 variant"
        ),
        "ops.array.casting": "cast saturate_cast",
        "ops.math.complex": "complex",
        "ops.strings.conversions": "as_string",
    },
    "errors": {
        "errors": (
            "ABORTED ALREADY_EXISTS AbortedError AlreadyExistsError CANCELLED CancelledError DATA_LOSS "
            "DEADLINE_EXCEEDED DataLossError DeadlineExceededError FAILED_PRECONDITION "
            "FailedPreconditionError INTERNAL INVALID_ARGUMENT InternalError InvalidArgumentError NOT_FOUND "
            "NotFoundError OK OUT_OF_RANGE OpError OutOfRangeError PERMISSION_DENIED PermissionDeniedError "
            "RESOURCE_EXHAUSTED ResourceExhaustedError UNAUTHENTICATED UNAVAILABLE UNIMPLEMENTED UNKNOWN "
            "UnauthenticatedError UnavailableError UnimplementedError UnknownError "
            "error_code_from_exception_type exception_type_from_error_code"
        ),
    },
    "examples.tutorials.mnist.input_data": {
        "compat.mnist_data": (
            "DataSet Datasets dense_to_one_hot extract_images extract_labels maybe_download read_data_sets"
        ),
    },
    "examples.tutorials.mnist.mnist": {
        "compat.mnist_model": "IMAGE_PIXELS IMAGE_SIZE NUM_CLASSES evaluation inference loss training",
    },
    "feature_column": {
        "estimator.column_layers": "input_layer linear_model make_parse_example_spec",
        "estimator.crossed_columns": "crossed_column",
        "estimator.dense_columns": "embedding_column indicator_column",
        "estimator.feature_columns": (
            "bucketized_column categorical_column_with_hash_bucket categorical_column_with_identity "
            "categorical_column_with_vocabulary_file categorical_column_with_vocabulary_list numeric_column"
        ),
    },
    "flags": {
        "compat.flags": (
            "ArgumentParser ArgumentSerializer BaseListParser BooleanFlag BooleanParser CantOpenFlagFileError "
            "CsvListSerializer DEFINE DEFINE_alias DEFINE_bool DEFINE_boolean DEFINE_enum DEFINE_enum_class "
            "DEFINE_flag DEFINE_float DEFINE_integer DEFINE_list DEFINE_multi DEFINE_multi_enum "
            "DEFINE_multi_enum_class DEFINE_multi_float DEFINE_multi_integer DEFINE_multi_string "
            "DEFINE_spaceseplist DEFINE_string DuplicateFlagError EnumClassFlag EnumClassListSerializer "
            "EnumClassParser EnumClassSerializer EnumFlag EnumParser Error FLAGS Flag FlagHolder "
            "FlagNameConflictsWithMethodError FlagValues FloatParser IllegalFlagValueError IntegerParser "
            "ListParser ListSerializer MultiEnumClassFlag MultiFlag UnparsedFlagAccessError "
            "UnrecognizedFlagError ValidationError WhitespaceSeparatedListParser adopt_module_key_flags "
            "declare_key_flag disclaim_key_flags doc_to_help flag_dict_to_args get_help_width "
            "mark_bool_flags_as_mutual_exclusive mark_flag_as_required mark_flags_as_mutual_exclusive "
            "mark_flags_as_required multi_flags_validator override_value register_multi_flags_validator "
            "register_validator set_default text_wrap validator"
        ),
    },
    "gfile": {
        "compat.file_io_names": (
            "Copy=copy DeleteRecursively=delete_recursively Exists=file_exists FastGFile GFile "
            "Glob=get_matching_files IsDirectory=is_directory ListDirectory=list_directory "
            "MakeDirs=recursive_create_dir MkDir=create_dir Open=GFile Remove=delete_file Rename=rename "
            "Stat=stat Walk=walk"
        ),
    },
    "graph_util": {
        "compat.graph_util": (
            "convert_variables_to_constants extract_sub_graph import_graph_def must_run_on_cpu "
            "remove_training_nodes tensor_shape_from_node_def_name"
        ),
    },
    "estimator": {
        "estimator.estimator": "Estimator",
        "estimator.exporters": "BestExporter Exporter FinalExporter LatestExporter",
        "estimator.model_spec": "EstimatorSpec",
        "estimator.modes": "ModeKeys",
        "estimator.premade": (
            "DNNClassifier DNNLinearCombinedClassifier DNNLinearCombinedRegressor DNNRegressor LinearClassifier "
            "LinearRegressor"
        ),
        "estimator.run_config": "RunConfig",
        "estimator.cluster_training": "train_and_evaluate",
        "estimator.training_specs": "EvalSpec TrainSpec",
        "estimator.warm_start_settings": "WarmStartSettings",
        "train.checkpointing.warm_starting": "VocabInfo",
        "train.hooks.checkpoint_hook": "CheckpointSaverHook CheckpointSaverListener",
        "train.hooks.final_hooks": "FeedFnHook FinalOpsHook",
        "train.hooks.logging_hooks": "LoggingTensorHook StepCounterHook",
        "train.hooks.session_run_hook": "SessionRunArgs SessionRunContext SessionRunHook SessionRunValues",
        "train.hooks.stopping_hooks": (
            "GlobalStepWaiterHook NanLossDuringTrainingError NanTensorHook StopAtStepHook"
        ),
        "train.hooks.summary_hooks": "ProfilerHook SummarySaverHook",
        "train.hooks.timers": "SecondOrStepTimer",
    },
    "estimator.experimental": {
        "estimator.early_stopping": (
            "make_early_stopping_hook stop_if_higher_hook stop_if_lower_hook stop_if_no_decrease_hook "
            "stop_if_no_increase_hook"
        ),
        "estimator.serving_inputs": "build_raw_supervised_input_receiver_fn",
    },
    "estimator.export": {
        "estimator.export_outputs": "ClassificationOutput EvalOutput ExportOutput PredictOutput RegressionOutput",
        "estimator.serving_inputs": (
            "ServingInputReceiver TensorServingInputReceiver build_parsing_serving_input_receiver_fn "
            "build_raw_serving_input_receiver_fn"
        ),
    },
    "estimator.inputs": {
        "estimator.array_inputs": "numpy_input_fn pandas_input_fn",
    },
    "image": {
        "ops.image.colours": (
            "adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_saturation convert_image_dtype "
            "grayscale_to_rgb hsv_to_rgb per_image_standardization random_brightness random_contrast "
            "random_hue random_saturation rgb_to_grayscale rgb_to_hsv"
        ),
        "ops.image.geometry": (
            "ResizeMethod central_crop crop_to_bounding_box flip_left_right flip_up_down pad_to_bounding_box "
            "random_flip_left_right random_flip_up_down resize=resize_images resize_image_with_crop_or_pad "
            "resize_images resize_with_crop_or_pad=resize_image_with_crop_or_pad rot90 "
            "transpose=transpose_image transpose_image"
        ),
        "ops.image.measures": (
            "image_gradients psnr rgb_to_yiq rgb_to_yuv sobel_edges ssim total_variation yiq_to_rgb "
            "yuv_to_rgb"
        ),
        "ops.image.boxes": (
            "crop_and_resize non_max_suppression non_max_suppression_overlaps non_max_suppression_padded "
            "non_max_suppression_with_scores"
        ),
        "ops.image.codecs": (
            "decode_and_crop_jpeg decode_bmp decode_gif decode_image decode_jpeg decode_png encode_jpeg "
            "encode_png extract_jpeg_shape is_jpeg"
        ),
        "ops.image.distortion": "draw_bounding_boxes sample_distorted_bounding_box",
        "ops.image.patches": "extract_image_patches extract_patches",
        "ops.image.resize": "resize_area resize_bicubic resize_bilinear resize_nearest_neighbor",
        "ops.random.functions": "random_crop",
    },
    "initializers": {
        "ops.variables.initializers": (
            "constant glorot_normal glorot_uniform he_normal he_uniform identity lecun_normal lecun_uniform "
            "ones orthogonal random_normal random_uniform truncated_normal uniform_unit_scaling "
            "variance_scaling zeros"
        ),
        "ops.tables.functions": "tables=tables_initializer tables_initializer",
        "ops.variables.functions": (
            "global_variables=global_variables_initializer local_variables=local_variables_initializer "
            "variables=variables_initializer"
        ),
    },
    "io": {
        "ops.io.csv_ops": "decode_compressed decode_csv",
        "ops.io.file_ops": "matching_files read_file write_file",
        "ops.image.codecs": (
            "decode_and_crop_jpeg decode_bmp decode_gif decode_image decode_jpeg decode_png encode_jpeg "
            "extract_jpeg_shape is_jpeg"
        ),
        "ops.io.parsing_functions": (
            "FixedLenFeature FixedLenSequenceFeature SparseFeature VarLenFeature decode_json_example "
            "parse_example parse_sequence_example parse_single_example parse_single_sequence_example "
            "parse_tensor serialize_tensor"
        ),
        "ops.queues.queues": "PaddingFIFOQueue PriorityQueue QueueBase RandomShuffleQueue",
        "ops.sparse.serialization": (
            "deserialize_many_sparse deserialize_sparse serialize_many_sparse serialize_sparse"
        ),
        "ops.strings.conversions": "decode_raw",
        "ops.strings.elementwise": "decode_base64 encode_base64",
        "ops.io.tf_record": "TFRecordCompressionType TFRecordOptions TFRecordWriter tf_record_iterator",
        "train.checkpointing.graph_files": "write_graph",
        "train.inputs.input_producers": "match_filenames_once",
    },
    "io.gfile": {
        "compat.file_io": (
            "GFile copy exists glob isdir listdir makedirs mkdir remove rename rmtree stat walk"
        ),
    },
    "keras.utils": {
        "compat.keras_files": "get_file to_categorical",
    },
    "keras.datasets.mnist": {
        "compat.keras_data": "load_data",
    },
    "layers": {
        "layers.base": "Layer",
        "layers.convolutional": (
            "Conv1D Conv2D Conv2DTranspose Conv3D Conv3DTranspose SeparableConv1D SeparableConv2D conv1d conv2d "
            "conv2d_transpose conv3d conv3d_transpose separable_conv1d separable_conv2d"
        ),
        "layers.core": "Dense Dropout Flatten dense dropout flatten",
        "layers.input_spec": "InputSpec",
        "layers.normalization": "BatchNormalization batch_normalization",
        "layers.pooling": (
            "AveragePooling1D AveragePooling2D AveragePooling3D MaxPooling1D MaxPooling2D MaxPooling3D "
            "average_pooling1d average_pooling2d average_pooling3d max_pooling1d max_pooling2d max_pooling3d"
        ),
    },
    "linalg": {
        "ops.array.diagonals": (
            "band_part=matrix_band_part diag=matrix_diag diag_part=matrix_diag_part eye "
            "set_diag=matrix_set_diag tensor_diag=diag tensor_diag_part=diag_part"
        ),
        "ops.array.transpose": "matrix_transpose transpose=matrix_transpose",
        "ops.math.clip": "global_norm",
        "ops.linalg.decompositions": (
            "cholesky cholesky_solve eigh=self_adjoint_eig eigvalsh=self_adjoint_eigvals lu qr svd"
        ),
        "ops.linalg.functions": "adjoint logdet matrix_rank norm normalize pinv trace",
        "ops.linalg.matrix_functions": "expm logm sqrtm",
        "ops.linalg.solving": (
            "det=matrix_determinant inv=matrix_inverse lstsq=matrix_solve_ls slogdet solve=matrix_solve "
            "triangular_solve=matrix_triangular_solve"
        ),
        "ops.math.contraction": "einsum tensordot",
        "ops.math.matmul": "cross matmul matvec",
        "ops.nn.normalization": "l2_normalize",
    },
    "logging": {
        "compat.tf_logging": (
            "DEBUG ERROR FATAL INFO TaskLevelStatusMessage WARN debug error fatal flush get_verbosity info "
            "log log_every_n log_first_n log_if set_verbosity vlog warn warning"
        ),
    },
    "lookup": {
        "ops.tables.initializers": "KeyValueTensorInitializer TextFileIndex TextFileInitializer",
        "ops.tables.functions": "StaticHashTable",
        "ops.tables.vocabulary_tables": "StaticVocabularyTable",
    },
    "lookup.experimental": {
        "train.checkpointing.saved_tables": "DenseHashTable MutableHashTable",
    },
    "losses": {
        "layers.loss_reduction": (
            "Reduction add_loss compute_weighted_loss get_losses get_regularization_loss "
            "get_regularization_losses get_total_loss"
        ),
        "layers.losses": (
            "absolute_difference cosine_distance hinge_loss huber_loss log_loss mean_pairwise_squared_error "
            "mean_squared_error sigmoid_cross_entropy softmax_cross_entropy sparse_softmax_cross_entropy"
        ),
    },
    "manip": {
        "ops.array.blocks": "batch_to_space_nd space_to_batch_nd",
        "ops.array.gather": "gather_nd",
        "ops.array.layout": "reverse roll tile",
        "ops.array.scatter": "scatter_nd",
        "ops.array.shape": "reshape",
    },
    "math": {
        "ops.array.index_sets": "invert_permutation",
        "layers.metrics.confusion_matrix": "confusion_matrix",
        "ops.linalg.solving": "reciprocal_no_nan",
        "ops.math.comparison": (
            "equal greater greater_equal less less_equal logical_and logical_not logical_or logical_xor "
            "not_equal"
        ),
        "ops.math.complex": "abs angle imag real",
        "ops.math.elementwise": (
            "add conj divide divide_no_nan=div_no_nan floordiv floormod maximum minimum mod multiply "
            "multiply_no_nan negative scalar_mul squared_difference subtract truediv"
        ),
        "ops.math.powers": "atan2 nextafter pow xdivy xlogy",
        "ops.math.reductions": "cumprod cumsum",
        "ops.math.segments": (
            "segment_max segment_mean segment_min segment_prod segment_sum unsorted_segment_max "
            "unsorted_segment_mean unsorted_segment_min unsorted_segment_prod unsorted_segment_sqrt_n "
            "unsorted_segment_sum"
        ),
        "ops.math.special": (
            "bessel_i0 bessel_i0e bessel_i1 bessel_i1e betainc cumulative_logsumexp igamma igammac lbeta "
            "polyval"
        ),
        "ops.math.sums": "accumulate_n add_n",
        "ops.math.unary": (
            "acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc exp expm1 floor is_finite is_inf "
            "is_nan lgamma log log1p log_sigmoid polygamma reciprocal rint round rsqrt sigmoid sign sin sinh "
            "sqrt square tan tanh zeta"
        ),
        "ops.nn.activation": "softplus softsign",
        "ops.nn.cross_entropy": "log_softmax softmax",
        "ops.nn.normalization": "l2_normalize zero_fraction",
        "ops.math.topk": "in_top_k top_k",
        "ops.math.reduce_functions": (
            "argmax argmin bincount count_nonzero reduce_all reduce_any reduce_euclidean_norm "
            "reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_std reduce_sum "
            "reduce_variance"
        ),
        "ops.debugging.shape_checks": "is_non_decreasing is_strictly_increasing",
    },
    "metrics": {
        "layers.metrics.means": (
            "accuracy mean mean_absolute_error mean_cosine_distance mean_iou mean_per_class_accuracy "
            "mean_relative_error mean_squared_error mean_tensor percentage_below root_mean_squared_error"
        ),
        "layers.metrics.at_k": (
            "average_precision_at_k precision_at_k precision_at_top_k recall_at_k recall_at_top_k "
            "sparse_average_precision_at_k sparse_precision_at_k"
        ),
        "layers.metrics.binary": (
            "auc false_negatives false_negatives_at_thresholds false_positives false_positives_at_thresholds "
            "precision precision_at_thresholds recall recall_at_thresholds sensitivity_at_specificity "
            "specificity_at_sensitivity true_negatives true_negatives_at_thresholds true_positives "
            "true_positives_at_thresholds"
        ),
    },
    "nest": {
        "graph.nest": "assert_same_structure flatten is_nested map_structure pack_sequence_as",
    },
    "nn": {
        "layers.rnn.raw_rnn": "raw_rnn",
        "layers.rnn.unrolling": "bidirectional_dynamic_rnn dynamic_rnn static_bidirectional_rnn static_rnn",
        "layers.rnn.state_saving": "static_state_saving_rnn",
        "ops.array.blocks": "depth_to_space space_to_batch space_to_depth",
        "ops.nn.candidate_sampling": (
            "all_candidate_sampler compute_accidental_hits fixed_unigram_candidate_sampler "
            "learned_unigram_candidate_sampler log_uniform_candidate_sampler uniform_candidate_sampler"
        ),
        "ops.nn.ctc_decoding": "ctc_beam_search_decoder ctc_beam_search_decoder_v2 ctc_greedy_decoder",
        "ops.nn.ctc_loss": "collapse_repeated ctc_loss ctc_loss_v2 ctc_unique_labels",
        "ops.math.unary": "sigmoid tanh",
        "ops.nn.activation": "crelu elu leaky_relu relu relu6 selu softplus softsign",
        "ops.nn.batch_norm": "fused_batch_norm",
        "ops.nn.bias": "bias_add l2_loss relu_layer xw_plus_b",
        "ops.nn.convolution": (
            "atrous_conv2d conv1d conv2d conv2d_backprop_filter conv2d_backprop_input conv2d_transpose conv3d "
            "conv3d_backprop_filter conv3d_backprop_filter_v2=conv3d_backprop_filter conv3d_transpose "
            "depthwise_conv2d depthwise_conv2d_backprop_filter depthwise_conv2d_backprop_input "
            "depthwise_conv2d_native depthwise_conv2d_native_backprop_filter=depthwise_conv2d_backprop_filter "
            "depthwise_conv2d_native_backprop_input=depthwise_conv2d_backprop_input separable_conv2d"
        ),
        "ops.nn.cross_entropy": (
            "log_poisson_loss log_softmax sigmoid_cross_entropy_with_logits softmax "
            "softmax_cross_entropy_with_logits softmax_cross_entropy_with_logits_v2 "
            "sparse_softmax_cross_entropy_with_logits weighted_cross_entropy_with_logits"
        ),
        "ops.nn.dilated": "avg_pool1d avg_pool_v2 convolution max_pool1d max_pool_v2 pool with_space_to_batch",
        "ops.nn.embedding": "embedding_lookup embedding_lookup_sparse safe_embedding_lookup_sparse",
        "ops.nn.global_norm": "batch_norm_with_global_normalization",
        "ops.nn.max_argmax": "max_pool_with_argmax",
        "ops.nn.morphology": "dilation2d erosion2d",
        "ops.nn.normalization": (
            "batch_normalization dropout l2_normalize local_response_normalization "
            "lrn=local_response_normalization moments normalize_moments sufficient_statistics swish "
            "weighted_moments zero_fraction"
        ),
        "ops.nn.pooling": "avg_pool avg_pool2d=avg_pool avg_pool3d max_pool max_pool2d max_pool3d",
        "ops.nn.sampled_losses": "nce_loss sampled_softmax_loss",
        "ops.nn.transposed": "atrous_conv2d_transpose conv1d_transpose conv_transpose",
        "ops.math.topk": "in_top_k top_k",
    },
    "nn.rnn_cell": {
        "layers.rnn.cells": "BasicLSTMCell BasicRNNCell GRUCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell",
        "layers.rnn.cell_wrappers": "DeviceWrapper DropoutWrapper ResidualWrapper",
    },
    "python.client.device_lib": {
        "compat.internal_names": "list_local_devices",
    },
    "python.client.timeline": {
        "train.summaries.timeline": "Timeline",
    },
    "python_io": {
        "ops.io.tf_record": "TFRecordCompressionType TFRecordOptions TFRecordWriter tf_record_iterator",
    },
    "queue": {
        "ops.queues.queues": "FIFOQueue PaddingFIFOQueue PriorityQueue QueueBase RandomShuffleQueue",
    },
    "ragged": {
        "ops.ragged.factory": "constant=ragged_constant constant_value=ragged_constant_value",
        "ops.ragged.ragged_tensor": "RaggedTensorValue placeholder=ragged_placeholder",
    },
    "random": {
        "ops.nn.candidate_sampling": (
            "all_candidate_sampler fixed_unigram_candidate_sampler learned_unigram_candidate_sampler "
            "log_uniform_candidate_sampler uniform_candidate_sampler"
        ),
        "ops.random.stateless": (
            "stateless_categorical stateless_multinomial stateless_normal stateless_truncated_normal "
            "stateless_uniform"
        ),
        "ops.random.functions": (
            "categorical gamma=random_gamma multinomial normal=random_normal poisson=random_poisson "
            "shuffle=random_shuffle truncated_normal uniform=random_uniform"
        ),
        "graph.scoping": "get_seed set_random_seed",
    },
    "resource_loader": {
        "compat.resource_loader": (
            "get_data_files_path get_path_to_datafile get_root_dir_with_all_resources load_resource "
            "readahead_file_path"
        ),
    },
    "saved_model": {
        "train.checkpointing.saved_model.builder": "Builder=SavedModelBuilder simple_save",
        "train.checkpointing.saved_model.constants": (
            "ASSETS_DIRECTORY ASSETS_KEY CLASSIFY_INPUTS CLASSIFY_METHOD_NAME CLASSIFY_OUTPUT_CLASSES "
            "CLASSIFY_OUTPUT_SCORES DEFAULT_SERVING_SIGNATURE_DEF_KEY GPU LEGACY_INIT_OP_KEY MAIN_OP_KEY "
            "PREDICT_INPUTS PREDICT_METHOD_NAME PREDICT_OUTPUTS REGRESS_INPUTS REGRESS_METHOD_NAME "
            "REGRESS_OUTPUTS SAVED_MODEL_FILENAME_PB SAVED_MODEL_FILENAME_PBTXT SAVED_MODEL_SCHEMA_VERSION "
            "SERVING TPU TRAINING VARIABLES_DIRECTORY VARIABLES_FILENAME"
        ),
        "train.checkpointing.saved_model.loader": (
            "contains_saved_model=maybe_saved_model_directory load main_op_with_restore "
            "maybe_saved_model_directory"
        ),
        "train.checkpointing.saved_model.signatures": (
            "build_signature_def build_tensor_info classification_signature_def get_tensor_from_tensor_info "
            "is_valid_signature predict_signature_def regression_signature_def"
        ),
    },
    "saved_model.builder": {
        "train.checkpointing.saved_model.builder": "SavedModelBuilder",
    },
    "saved_model.constants": {
        "train.checkpointing.saved_model.constants": (
            "ASSETS_DIRECTORY ASSETS_KEY LEGACY_INIT_OP_KEY MAIN_OP_KEY SAVED_MODEL_FILENAME_PB "
            "SAVED_MODEL_FILENAME_PBTXT SAVED_MODEL_SCHEMA_VERSION VARIABLES_DIRECTORY VARIABLES_FILENAME"
        ),
    },
    "saved_model.loader": {
        "train.checkpointing.saved_model.loader": "load maybe_saved_model_directory",
    },
    "saved_model.main_op": {
        "train.checkpointing.saved_model.loader": "main_op main_op_with_restore",
    },
    "saved_model.signature_constants": {
        "train.checkpointing.saved_model.constants": (
            "CLASSIFY_INPUTS CLASSIFY_METHOD_NAME CLASSIFY_OUTPUT_CLASSES CLASSIFY_OUTPUT_SCORES "
            "DEFAULT_SERVING_SIGNATURE_DEF_KEY PREDICT_INPUTS PREDICT_METHOD_NAME PREDICT_OUTPUTS "
            "REGRESS_INPUTS REGRESS_METHOD_NAME REGRESS_OUTPUTS"
        ),
    },
    "saved_model.signature_def_utils": {
        "train.checkpointing.saved_model.signatures": (
            "build_signature_def classification_signature_def is_valid_signature predict_signature_def "
            "regression_signature_def"
        ),
    },
    "saved_model.tag_constants": {
        "train.checkpointing.saved_model.constants": "GPU SERVING TPU TRAINING",
    },
    "saved_model.utils": {
        "train.checkpointing.saved_model.signatures": "build_tensor_info get_tensor_from_tensor_info",
    },
    "sets": {
        "ops.sparse.set_operations": (
            "difference=set_difference intersection=set_intersection set_difference set_intersection set_size "
            "set_union size=set_size union=set_union"
        ),
    },
    "signal": {
        "ops.math.spectral": "fft fft2d fft3d ifft ifft2d ifft3d irfft irfft2d irfft3d rfft rfft2d rfft3d",
    },
    "sparse": {
        "ops.queues.accumulators": "SparseConditionalAccumulator",
        "ops.math.sparse_segments": (
            "segment_mean=sparse_segment_mean segment_sqrt_n=sparse_segment_sqrt_n "
            "segment_sum=sparse_segment_sum"
        ),
        "ops.sparse.arithmetic": (
            "add=sparse_add matmul=sparse_tensor_dense_matmul maximum=sparse_maximum minimum=sparse_minimum "
            "reduce_max=sparse_reduce_max reduce_max_sparse=sparse_reduce_max_sparse "
            "reduce_sum=sparse_reduce_sum reduce_sum_sparse=sparse_reduce_sum_sparse softmax=sparse_softmax "
            "sparse_dense_matmul=sparse_tensor_dense_matmul"
        ),
        "ops.sparse.crossing": "cross=sparse_cross cross_hashed=sparse_cross_hashed",
        "ops.sparse.functions": (
            "concat=sparse_concat expand_dims=sparse_expand_dims eye=sparse_eye "
            "fill_empty_rows=sparse_fill_empty_rows from_dense mask=sparse_mask merge=sparse_merge "
            "placeholder=sparse_placeholder reorder=sparse_reorder reset_shape=sparse_reset_shape "
            "reshape=sparse_reshape retain=sparse_retain slice=sparse_slice split=sparse_split "
            "to_dense=sparse_tensor_to_dense to_indicator=sparse_to_indicator transpose=sparse_transpose"
        ),
        "ops.sparse.sparse_tensor": "SparseTensor",
    },
    "spectral": {
        "ops.math.spectral": "fft fft2d fft3d ifft ifft2d ifft3d irfft irfft2d irfft3d rfft rfft2d rfft3d",
    },
    "strings": {
        "ops.debugging.logging_ops": "format=string_format",
        "ops.strings.conversions": "as_string reduce_join to_number=string_to_number",
        "ops.strings.pieces": (
            "split=string_split_v2 to_hash_bucket=string_to_hash_bucket "
            "to_hash_bucket_fast=string_to_hash_bucket_fast "
            "to_hash_bucket_strong=string_to_hash_bucket_strong unsorted_segment_join"
        ),
        "ops.strings.unicode": (
            "bytes_split=string_bytes_split unicode_decode unicode_decode_with_offsets unicode_encode "
            "unicode_split unicode_split_with_offsets unicode_transcode"
        ),
        "ops.strings.elementwise": (
            "join=string_join length=string_length lower=string_lower regex_full_match regex_replace "
            "strip=string_strip substr upper=string_upper"
        ),
    },
    "summary": {
        "ops.summary.functions": (
            "audio get_summary_description histogram image merge merge_all scalar tensor_summary text"
        ),
        "protos": "Event SessionLog Summary SummaryDescription TaggedRunMetadata",
        "train.summaries.contrib_summary": "all_v2_summary_ops=all_summary_ops initialize",
        "train.summaries.summary_writer": "FileWriter FileWriterCache",
    },
    "sysconfig": {
        "compat.sysconfig": (
            "CXX11_ABI_FLAG MONOLITHIC_BUILD get_compile_flags get_include get_lib get_link_flags"
        ),
    },
    "test": {
        "compat.gradient_checker": "compute_gradient compute_gradient_error",
        "compat.test_case": "Benchmark TestCase get_temp_dir main",
        "compat.test_functions": (
            "assert_equal_graph_def benchmark_config create_local_cluster gpu_device_name is_built_with_cuda "
            "is_built_with_gpu_support is_built_with_rocm is_gpu_available test_src_dir_path"
        ),
        "compat.test_stubs": "StubOutForTesting mock",
    },
    "train": {
        "cluster": "ClusterSpec",
        "placement.device_setter": "replica_device_setter",
        "protos": (
            "BytesList ClusterDef Example Feature FeatureList FeatureLists Features FloatList Int64List "
            "JobDef SaverDef SequenceExample ServerDef"
        ),
        "runtime.server": "Server",
        "train.replicas.all_reduce": "AllReduceOptimizer",
        "train.loops.slim_learning": "basic_train_loop",
        "train.inputs.batching": (
            "batch batch_join maybe_batch maybe_batch_join maybe_shuffle_batch maybe_shuffle_batch_join "
            "shuffle_batch shuffle_batch_join"
        ),
        "train.checkpointing.checkpoint": "Checkpoint",
        "train.hooks.checkpoint_hook": "CheckpointSaverHook CheckpointSaverListener",
        "train.checkpointing.init_from_checkpoint": "init_from_checkpoint",
        "train.checkpointing.checkpoint_manager": "CheckpointManager",
        "train.checkpointing.polling": "checkpoints_iterator",
        "train.checkpointing.reader": "NewCheckpointReader list_variables load_checkpoint load_variable",
        "train.checkpointing.state_file": (
            "checkpoint_exists generate_checkpoint_state_proto get_checkpoint_mtimes get_checkpoint_state "
            "latest_checkpoint remove_checkpoint update_checkpoint_state"
        ),
        "train.coordinator": "Coordinator LooperThread",
        "train.summaries.event_file_reader": "summary_iterator",
        "train.hooks.final_hooks": "FeedFnHook FinalOpsHook",
        "train.hooks.timers": "SecondOrStepTimer",
        "train.inputs.input_producers": (
            "input_producer limit_epochs match_filenames_once range_input_producer slice_input_producer "
            "string_input_producer"
        ),
        "train.optimizers.fused_optimizer": (
            "AdadeltaOptimizer AdagradDAOptimizer AdagradOptimizer AdamOptimizer FtrlOptimizer "
            "GradientDescentOptimizer MomentumOptimizer ProximalAdagradOptimizer ProximalGradientDescentOptimizer "
            "RMSPropOptimizer"
        ),
        "train.optimizers.learning_rate_decay": (
            "cosine_decay cosine_decay_restarts exponential_decay inverse_time_decay linear_cosine_decay "
            "natural_exp_decay noisy_linear_cosine_decay piecewise_constant piecewise_constant_decay "
            "polynomial_decay"
        ),
        "train.hooks.logging_hooks": "LoggingTensorHook StepCounterHook",
        "train.checkpointing.graph_files": "export_meta_graph write_graph",
        "train.checkpointing.import_meta_graph": "import_meta_graph",
        "train.sessions.monitored_session": "MonitoredSession SingularMonitoredSession",
        "train.sessions.monitored_training": "MonitoredTrainingSession",
        "train.optimizers.moving_averages": "ExponentialMovingAverage",
        "train.optimizers.optimizer": "Optimizer",
        "train.inputs.queue_runners": "QueueRunner add_queue_runner start_queue_runners",
        "train.checkpointing.saver": "Saver",
        "train.sessions.scaffold": "Scaffold",
        "train.sessions.session_creators": "ChiefSessionCreator SessionCreator WorkerSessionCreator",
        "train.sessions.session_manager": "SessionManager",
        "train.hooks.session_run_hook": "SessionRunArgs SessionRunContext SessionRunHook SessionRunValues",
        "train.hooks.stopping_hooks": (
            "GlobalStepWaiterHook NanLossDuringTrainingError NanTensorHook StopAtStepHook"
        ),
        "train.hooks.summary_hooks": "ProfilerHook SummarySaverHook",
        "train.sessions.supervisor": "Supervisor",
        "train.replicas.sync_replicas": "SyncReplicasOptimizer",
        "train.global_steps": (
            "assert_global_step create_global_step get_global_step get_or_create_global_step global_step"
        ),
        "train.checkpointing.warm_starting": "VocabInfo warm_start",
    },
    "train.experimental": {
        "train.optimizers.loss_scale": "DynamicLossScale FixedLossScale LossScale",
        "train.optimizers.loss_scale_optimizer": "MixedPrecisionLossScaleOptimizer",
    },
    "train.queue_runner": {
        "train.inputs.queue_runners": "QueueRunner add_queue_runner start_queue_runners",
    },
    "version": {
        "_version": "COMPILER_VERSION GIT_VERSION VERSION=API_VERSION",
        "graph.graph_def": "GRAPH_DEF_VERSION GRAPH_DEF_VERSION_MIN_CONSUMER GRAPH_DEF_VERSION_MIN_PRODUCER",
    },
}

ALIASES = {
    # namespace: another one with the same names
    "app.flags": "flags",
    "contrib.distributions": "distributions",
    "contrib.slim.losses": "contrib.losses",
    "contrib.slim.metrics": "contrib.metrics",
    "contrib.slim.utils": "contrib.layers.utils",
}
NAMES |= {alias: NAMES[name] for alias, name in ALIASES.items()}
