"""The table of `tfmini.compat.internals`: which modules have the names of TensorFlow's private paths.

Sources, in the order in which a name is looked up -> the modules of TensorFlow that get them. What a module has of its
own is exported to it (`tfmini.export`).
"""

from __future__ import annotations

_OPS = {
    ":layers.losses": "weights_broadcast_ops",
    ":compat.graph_editor.walks :compat.graph_editor.selection": "op_selector",
    ":layers.contrib.clustering raw": "clustering_ops",
    ":ops.collectives": "collective_ops",
    "tf": (
        "clip_ops custom_gradient gradients gradients_impl gradients_util histogram_ops map_fn numerics "
        "partitioned_variables script_ops session_ops special_math_ops standard_ops template tensor_array_ops "
        "unconnected_gradients variable_v1"
    ),
    "tf.bitwise": "bitwise_ops",
    "tf.debugging": "check_ops",
    "tf.distributions": (
        "distributions.bernoulli distributions.categorical distributions.distribution distributions.kullback_leibler "
        "distributions.normal"
    ),
    "tf.image": "image_ops image_ops_impl",
    "tf.initializers": "init_ops_v2",
    "tf.linalg": (
        "linalg.linalg linalg.linear_operator linalg.linear_operator_adjoint linalg.linear_operator_block_diag "
        "linalg.linear_operator_circulant linalg.linear_operator_composition linalg.linear_operator_diag "
        "linalg.linear_operator_full_matrix linalg.linear_operator_identity linalg.linear_operator_inversion "
        "linalg.linear_operator_kronecker linalg.linear_operator_low_rank_update "
        "linalg.linear_operator_lower_triangular linalg_impl"
    ),
    ":layers.linear_operators": "linalg.linear_operator_util",
    "tf.losses": "losses losses.losses losses.losses_impl losses.util",
    ":compat.tf_keras.losses_metrics": "losses.loss_reduction",
    "tf.manip": "manip_ops",
    "tf.metrics": "metrics",
    "tf.nn": "candidate_sampling_ops ctc_ops embedding_ops nn nn_impl",
    "tf tf.ragged": "ragged.ragged_factory_ops ragged.ragged_tensor ragged.ragged_tensor_value",
    "tf.resource_loader": "resource_loader",
    "tf.sets": "sets sets_impl",
    "tf.spectral": "spectral_ops",
    "tf.summary": "summary_ops",
    "tf.test": "gradient_checker",
    ":ops.array.gather raw": "inplace_ops",
    ":ops.variables.resource_variable raw": "resource_variable_ops",
    "tf :compat.graph_functions": "functional_ops",
    "tf :ops.array.layout": "array_ops",
    "tf :ops.variables.scope": "variable_scope",
    "tf raw": "state_ops",
    "tf tf.contrib.staging": "data_flow_ops",
    "tf tf.io": "parsing_ops",
    "tf tf.linalg": "linalg_ops",
    "tf tf.random": "random_ops",
    "tf tf.sparse": "sparse_ops",
    "tf tf.strings": "string_ops",
    "tf tf.summary": "logging_ops",
    "tf.metrics :compat.layers_names": "metrics_impl",
    "tf.nn :compat.layers_names": "rnn",
    "tf :ops.variables.base :ops.variables.functions": "variables",
    "tf tf.initializers :ops.variables.initializers": "init_ops",
    "tf tf.io raw": "io_ops",
    "tf tf.math :ops.math.reductions": "math_ops",
    "tf.contrib.lookup tf.lookup tf": "lookup_ops",
    "tf.math tf :layers.losses": "confusion_matrix",
    "tf.nn :ops.nn.convolution raw": "nn_ops",
    "tf.nn.rnn_cell tf.contrib.rnn :compat.layers_names": "rnn.rnn_cell_impl rnn_cell rnn_cell_impl",
    "tf :ops.control tf.contrib.framework :ops.flow.flow_ops": "control_flow_ops",
    "raw": (
        "gen_array_ops gen_audio_ops gen_bitwise_ops gen_candidate_sampling_ops gen_clustering_ops "
        "gen_control_flow_ops gen_ctc_ops "
        "gen_data_flow_ops gen_dataset_ops gen_functional_ops gen_image_ops gen_io_ops gen_linalg_ops gen_list_ops "
        "gen_logging_ops gen_lookup_ops gen_math_ops gen_nn_ops gen_parsing_ops gen_random_ops "
        "gen_resource_variable_ops gen_rnn_ops gen_script_ops gen_sparse_ops gen_spectral_ops gen_state_ops "
        "gen_stateless_random_ops gen_string_ops gen_summary_ops list_ops"
    ),
    "=ops.summary": "summary_op_util",
    "tf.contrib.summary tf.summary": "summary_ops_v2",
    "-": "array_grad cond_v2 nn_grad seq2seq while_v2",
}

_FRAMEWORK = {
    ":compat.graph_functions": "function",
    "tf :shapes": "common_shapes tensor_shape",
    "tf": (
        "constant_op device_spec importer load_library sparse_tensor tensor tensor_conversion_registry "
        "tensor_spec type_spec"
    ),
    "tf.contrib.framework": "smart_cond",
    "tf.errors": "errors errors_impl",
    "tf.random": "random_seed",
    "tf.train": "graph_io meta_graph",
    "tf.version": "versions",
    ":compat.tensor_util tf": "tensor_util",
    "tf :devices": "device",
    "tf :graph.conversion": "indexed_slices",
    "tf.dtypes :dtypes": "dtypes",
    "tf.graph_util :graph.graph_util": "graph_util graph_util_impl",
    "tf.test :compat.test_functions": "test_util",
    "tf :graph.conversion :graph.scoping :graph.scopes :ops.gradients :graph.meta_graph": ("ops"),
    "-": "c_api_util convert_to_constants fast_tensor_util op_def_registry registry subscribe",
}

_TRAINING = {
    ":train.optimizers.optimizer": "slot_creator",
    "tf.distribute": "distribute distribution_strategy_context",
    "tf.train": (
        "adadelta adagrad adagrad_da adam basic_loops basic_session_run_hooks checkpoint_management checkpoint_ops "
        "checkpoint_utils coordinator ftrl gradient_descent input learning_rate_decay momentum monitored_session "
        "proximal_adagrad proximal_gradient_descent py_checkpoint_reader queue_runner queue_runner_impl rmsprop saver "
        "server_lib session_manager session_run_hook supervisor sync_replicas_optimizer training warm_starting_util"
    ),
    ":train.evaluation": "evaluation",
    "=placement.device_setter": "device_setter",
    "tf.train :train.global_steps": "training_util",
    "tf.train :train.optimizers.moving_averages": "moving_averages",
    "tf.train :train.optimizers.optimizer": "optimizer",
    "tf.summary tf.train": "summary_io",
    "raw": "training_ops",
    "-": "learning_rate_decay_v2",
}

_ESTIMATOR = {
    "tf.estimator": "estimator exporter mode_keys model_fn training",
    "tf.estimator.export :estimator.model_export": "export.export export.export_output",
    "tf.estimator.tpu tf.contrib.tpu": "tpu.tpu_config tpu.tpu_estimator",
    "tf.estimator.inputs": "inputs.inputs inputs.numpy_io inputs.pandas_io",
    "tf.estimator tf.contrib.learn": "run_config",
    "tf.estimator :compat.tf_keras.heads": (
        "head.base_head head.binary_class_head head.head_utils head.multi_class_head head.multi_head "
        "head.multi_label_head head.regression_head"
    ),
}

_PYTHON = {
    ":compat.file_io_names": "lib.io.file_io",
    ":train.timeline": "client.timeline",
    "tf.app": "platform.app",
    "tf": "compat.v2_compat",
    "tf.compat": "compat.compat util.compat",
    "tf.estimator.tpu tf.tpu": "tpu.bfloat16 tpu.tpu_config tpu.tpu_estimator tpu.tpu_optimizer",
    "tf.data": "data.ops.dataset_ops data.ops.iterator_ops data.ops.readers",
    "tf.feature_column": "feature_column.feature_column feature_column.feature_column_v2",
    "tf.feature_column tf.keras.layers": "feature_column.dense_features feature_column.feature_column_lib",
    ":compat.tf_keras.names": "feature_column.dense_features_v2",
    "tf.flags": "platform.flags",
    "tf.gfile": "platform.gfile",
    "tf.keras": "keras",
    "tf.keras.datasets": "keras.datasets",
    "tf.keras.utils": "keras.utils",
    ":compat.tf_keras.state": "keras.backend_config",
    ":compat.tf_keras.backend": "keras.backend",
    ":compat.tf_keras.backend tf.contrib.framework": "keras.utils.tf_utils",
    "tf.layers": "keras.engine.input_spec layers.base layers.core layers.layers",
    "tf.logging": "platform.tf_logging",
    "tf.profiler": "profiler.model_analyzer profiler.option_builder",
    "tf.python.client.device_lib": "client.device_lib",
    "tf.python_io": "lib.io.python_io",
    "tf.resource_loader": "platform.resource_loader",
    "tf.saved_model": "saved_model.simple_save",
    "tf.summary": "summary.summary summary.writer.writer summary.writer.writer_cache",
    "tf.sysconfig": "platform.sysconfig",
    "tf.test": "platform.benchmark platform.test",
    "tf.train": "pywrap_tensorflow pywrap_tensorflow_internal summary.summary_iterator",
    ":compat.googletest tf.test": "platform.googletest",
    ":layers.contrib.model_variables tf.layers": "layers.utils",
    "tf :runtime.client.fetches": "client.session",
    "tf.layers :compat.layers_names": "layers.convolutional layers.normalization layers.pooling",
    "tf.nest :compat.nest_names": "data.util.nest",
    "tf.data.experimental :data.pipeline": "data.experimental.ops.cardinality",
    "tf.python_io tf.io": "lib.io.tf_record",
    "tf.saved_model.builder tf.saved_model": "saved_model.builder saved_model.builder_impl",
    "tf.saved_model.constants tf.saved_model": "saved_model.constants",
    "tf.saved_model.loader tf.saved_model": "saved_model.loader saved_model.loader_impl",
    "tf.saved_model.main_op tf.saved_model": "saved_model.main_op",
    "tf.saved_model.signature_constants tf.saved_model": "saved_model.signature_constants",
    "tf.saved_model.signature_def_utils tf.saved_model": (
        "saved_model.signature_def_utils saved_model.signature_def_utils_impl"
    ),
    "tf.saved_model.tag_constants tf.saved_model": "saved_model.tag_constants",
    "tf.saved_model.utils tf.saved_model": "saved_model.utils",
    "tf.nest tf.contrib.framework.nest :compat.nest_names": "util.nest",
    "-": (
        "compiler.tensorrt.trt_convert data.experimental.ops data.ops.multi_device_iterator_ops debug "
        "distribute.all_reduce distribute.v1.all_reduce"
    ),
}

_CONTRIB = {
    "tf.train": (
        "learn.python.learn.basic_session_run_hooks learn.python.learn.monitored_session "
        "learn.python.learn.session_run_hook"
    ),
    "tf.contrib.tpu tf.tpu": (
        "tpu.python.tpu tpu.python.tpu.bfloat16 tpu.python.tpu.tpu_config tpu.python.tpu.tpu_estimator "
        "tpu.python.tpu.tpu_optimizer"
    ),
    "tf.contrib.graph_editor": (
        "graph_editor.edit graph_editor.reroute graph_editor.select graph_editor.subgraph graph_editor.transform "
        "graph_editor.util"
    ),
    ":compat.mnist": "learn.python.learn.datasets.base",
    ":compat.test_functions": "eager.python.tfe",
    "tf.contrib.crf": "crf.python.ops.crf",
    "tf.contrib.image": (
        "image.python.ops.dense_image_warp image.python.ops.image_ops image.python.ops.interpolate_spline "
        "image.python.ops.sparse_image_warp"
    ),
    "tf.contrib.model_pruning": (
        "model_pruning.python.learning model_pruning.python.pruning model_pruning.python.strip_pruning_vars_lib "
        "model_pruning.python.layers.layers model_pruning.python.layers.rnn_cells"
    ),
    "tf.contrib.quantize": "quantize quantize.python quantize.python.quantize_graph",
    "tf.contrib.integrate": "integrate.python.ops.odes",
    "tf.contrib.factorization": "factorization.python.ops.kmeans",
    ":layers.contrib.clustering raw": "factorization.python.ops.clustering_ops",
    "tf.contrib.framework": (
        "framework.python.framework framework.python.framework.tensor_util framework.python.ops "
        "framework.python.ops.arg_scope framework.python.ops.variables"
    ),
    ":ops.audio": "framework.python.ops.audio_ops",
    "tf.contrib.layers": (
        "layers.python.layers layers.python.layers.initializers layers.python.layers.layers "
        "layers.python.layers.regularizers"
    ),
    "tf.contrib.layers.utils": "layers.python.layers.utils",
    "tf.contrib.losses.metric_learning": (
        "losses.python.metric_learning losses.python.metric_learning.metric_loss_ops"
    ),
    "tf.contrib.learn": (
        "learn.python.learn learn.python.learn.experiment learn.python.learn.metric_spec "
        "learn.python.learn.export_strategy learn.python.learn.estimators learn.python.learn.estimators.dnn "
        "learn.python.learn.estimators.estimator learn.python.learn.estimators.linear "
        "learn.python.learn.estimators.model_fn learn.python.learn.estimators.run_config"
    ),
    "tf.contrib.learn.learn_runner": "learn.python.learn.learn_runner",
    "tf.contrib.learn.models": "learn.python.learn.models",
    "tf.contrib.learn.monitors": "learn.python.learn.monitors",
    "tf.contrib.learn.datasets": "learn.python.learn.datasets",
    "tf.contrib.learn.datasets.mnist": "learn.python.learn.datasets.mnist",
    "tf.contrib.learn.preprocessing": (
        "learn.preprocessing.text learn.python.learn.preprocessing learn.python.learn.preprocessing.text"
    ),
    "tf.contrib.slim": "slim.python.slim",
    "tf.contrib.training": (
        "training.python.training training.python.training.device_setter training.python.training.evaluation "
        "training.python.training.hparam"
    ),
    "tf.contrib.lookup tf.lookup": "lookup.lookup_ops",
    "tf.contrib.rnn": "rnn.python.ops.lstm_ops",
    "tf.contrib.rnn tf.nn": "rnn.python.ops.core_rnn rnn.python.ops.rnn",
    "tf.data tf.contrib.data": "data",
    "tf.nest :compat.nest_names": "framework.nest",
    "tf.contrib.rnn tf.nn.rnn_cell :compat.layers_names": (
        "rnn.python.ops.core_rnn_cell rnn.python.ops.core_rnn_cell_impl rnn.python.ops.rnn_cell"
    ),
    "tf.contrib.seq2seq :layers.contrib.attention :compat.layers_names": "seq2seq.python.ops.attention_wrapper",
    "tf.contrib.seq2seq :layers.contrib.beam_search": (
        "seq2seq.python.ops.beam_search_decoder seq2seq.python.ops.beam_search_ops"
    ),
    "tf.contrib.seq2seq :layers.contrib.decoders :compat.layers_names": (
        "seq2seq.python.ops.basic_decoder seq2seq.python.ops.decoder seq2seq.python.ops.helper"
    ),
    "tf.contrib.seq2seq :layers.contrib.losses :compat.layers_names": "seq2seq.python.ops.loss",
    "-": "compiler compiler.xla eager eager.python image.python.ops.distort_image_ops nccl",
}


def _paths(package: str, modules_by_sources: dict[str, str]) -> dict[str, str]:
    """The sources of each module of a package: its full path -> sources."""
    return {
        f"{package}.{module}": sources for sources, modules in modules_by_sources.items() for module in modules.split()
    }


PATHS: dict[str, str] = {
    "python": "tf",
    "python.ops": "tf :graph.conversion :graph.scoping :graph.scopes :ops.gradients :graph.meta_graph",
    **_paths("python.ops", _OPS),
    **_paths("python.framework", _FRAMEWORK),
    **_paths("python.training", _TRAINING),
    **_paths("python.estimator", _ESTIMATOR),
    **_paths("python", _PYTHON),
    **_paths("contrib", _CONTRIB),
}


def _short() -> dict[str, str]:
    """The modules that ``tensorflow.python`` has as names of its own: ``from tensorflow.python import math_ops``."""
    homes = {
        "ops": (
            "array_ops check_ops clip_ops control_flow_ops control_flow_util gen_array_ops gen_control_flow_ops "
            "gen_data_flow_ops gen_functional_ops gen_io_ops gen_linalg_ops gen_math_ops gen_nn_ops gen_parsing_ops "
            "gen_random_ops gen_sparse_ops gen_state_ops gen_stateless_random_ops gen_string_ops list_ops math_ops "
            "nn_ops random_ops resource_variable_ops rnn rnn_cell sparse_ops state_ops tensor_array_ops"
        ),
        "framework": (
            "common_shapes constant_op dtypes errors_impl random_seed sparse_tensor tensor_shape tensor_spec "
            "tensor_util type_spec"
        ),
        "util": "deprecation function_utils nest object_identity tf_inspect tf_should_use",
        "platform": "tf_logging",
        "lib.io": "file_io",
        "eager": "context",
    }
    found = {f"python.{name}": f"python.{home}.{name}" for home, names in homes.items() for name in names.split()}
    return {**found, "python.vs": "python.ops.variable_scope", "python.framework_ops": "python.framework.ops"}


SHORT = _short()

# Paths at which a package has a function and a module below it has the same name: the attribute is the function.
FUNCTIONS = (
    "contrib.framework.python.framework.experimental",
    "contrib.framework.python.ops.arg_scope",
    "python.ops.parallel_for.pfor",
)

# Packages that contain only modules.
PACKAGES = (
    "core.framework",
    "core.lib.core",
    "core.protobuf",
    "core.util",
    "core.example",
    "examples.tutorials",
    "core.profiler",
)

# Paths below ``tensorflow`` that are out of scope, and the nearest alternative.
UNSUPPORTED: dict[str, str] = {
    "python.estimator": "tf.estimator.Estimator with a model function",
    "contrib.learn.python.learn.utils": "tf.estimator.Estimator with tf.estimator.train_and_evaluate and its exporters",
    "python.debug": "tf.Print, tf.Assert or extra fetches",
    "python.compiler": "the graph as it is",
    "python.eager": "a graph that a tf.Session runs",
    "python.tpu": "TPUEstimator(use_tpu=False), and tf.device with CPU devices",
    "python.autograph": "tf.cond and tf.while_loop",
    "python.distribute": "tf.train.replica_device_setter",
    "python.framework.convert_to_constants": "tf.graph_util.convert_variables_to_constants",
    "python.data.ops.multi_device_iterator_ops": "one tf.data iterator for each device",
    "python.tools": "its freeze_graph and inspect_checkpoint, tf.graph_util, tf.train.NewCheckpointReader",
    "python.keras.optimizer_v2": "tf.keras.optimizers, or the optimizers of tf.train",
    "python.keras.saving": "save_weights and load_weights of a model",
    "python.keras.utils": "tf.keras.utils",
    "python.client.session": "tf.Session.run with a structure of fetches",
    "python.feature_column": "tf.feature_column.input_layer",
    "python.framework.dtypes": "the dtype of the variable",
    "python.framework.function_def_to_graph": "tf.import_graph_def",
    "python.framework.load_library": "tf.py_func, or a kernel registered with tfmini.graph.registry.op",
    "python.framework.op_def_registry": "tf.raw_ops",
    "python.framework.ops": "the methods of tf.Graph and tf.Operation",
    "python.framework.tensor_spec": "tf.TensorSpec",
    "python.framework.type_spec": "tf.TypeSpec",
    "python.ops.array_ops": "tf.stop_gradient",
    "python.ops.control_flow_ops": "tf.cond, tf.case and tf.while_loop",
    "python.ops.gen_nccl_ops": "tf.collective_ops.all_reduce, or tf.add_n on one device",
    "python.ops.gradients_impl": "tf.gradients",
    "python.ops.linalg": "plain matrices and tf.matmul, tf.linalg.solve and tf.linalg.cholesky",
    "python.ops.list_ops": "tf.TensorArray",
    "python.ops.nccl_ops": "tf.collective_ops.all_reduce, or tf.add_n on one device",
    "python.ops.nn_ops": "tf.nn.convolution",
    "python.ops.random_ops": "tf.truncated_normal, scaled and shifted",
    "python.ops.resource_variable_ops": "tf.get_variable with use_resource=True, and its to_proto and from_proto",
    "python.ops.resources": "tf.report_uninitialized_variables",
    "python.ops.standard_ops": "the names of tf",
    "python.ops.summary_ops_v2": "tf.contrib.summary",
    "python.ops.variable_scope": "tf.variable_scope",
    "python.pywrap_tensorflow": "tf.summary.FileWriter, tf.train.NewCheckpointReader and tf.raw_ops",
    "python.saved_model": "tf.saved_model.loader.load",
    "python.training.basic_session_run_hooks": "tf.train.StopAtStepHook",
    "python.training.device_setter": "tf.train.replica_device_setter, whose ps_strategy may be any function",
    "python.training.session_manager": "tf.train.SessionManager",
    "python.training.tracking": "tf.train.Checkpoint",
    "python.util.deprecation_wrapper": "the module itself",
    "python.util.nest": "tf.nest",
    "python.util.object_identity": "id(), or the object as a key: tensors are compared by identity",
    "core.protobuf.tpu": "TPUEstimator(use_tpu=False)",
    "core.profiler": "tf.profiler.profile, and what it prints",
    "core.util.test_log_pb2": "a file of your own",
    "contrib.all_reduce": "tf.collective_ops.all_reduce, or tf.add_n on one device",
    "contrib.cudnn_rnn": "tf.contrib.rnn.LSTMBlockCell, or the cells of tf.nn.rnn_cell",
    "compiler": "the graph as it is",
    "lite": "TensorFlow",
    "contrib.tensor_forest": "scikit-learn's forests",
    "contrib.boosted_trees": "scikit-learn's gradient boosting",
    "contrib.factorization": "KMeans and KMeansClustering of tf.contrib.factorization, or scikit-learn",
    "contrib.eager": "a graph that a tf.Session runs",
    "contrib.compiler": "the graph as it is",
    "contrib.estimator": "tf.estimator.Estimator with a model function",
    "contrib.nccl": "tf.add_n",
    "contrib.tpu": "TPUEstimator(use_tpu=False), and tf.device with CPU devices",
    "contrib.tensorrt": "the graph as it is",
}
