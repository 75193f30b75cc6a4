"""Names that libraries import for code that few programs reach.

Each can be imported and derived from; it says what to use in its place when it is called, made or asked for an
attribute. Without them, one file of a library keeps all of it from being imported.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

_SESSIONS = "DumpingDebugWrapperSession LocalCLIDebugWrapperSession TensorBoardDebugWrapperSession"
_HOOKS = "DumpingDebugHook LocalCLIDebugHook TensorBoardDebugHook"

_TPU_OPS = (
    "all_to_all collective_permute cross_replica_sum outfeed_dequeue_tuple outfeed_enqueue_tuple tpu_replicated_input"
)

_ALL_REDUCE = (
    "build_nccl_all_reduce build_nccl_then_recursive_hd build_nccl_then_ring build_nccl_then_shuffle "
    "build_shuffle_then_ring build_shuffle_then_shuffle"
)

_CUDNN = "CudnnGRU CudnnLSTM CudnnRNNRelu CudnnRNNTanh"

# Module below ``tensorflow`` -> its names.
NAMES = {
    "python.autograph.converters.break_statements": "transform",
    "python.autograph.converters.continue_statements": "transform",
    "python.autograph.converters.return_statements": "transform",
    "python.autograph.core.converter": "ConversionOptions EntityContext ProgramContext standard_analysis",
    "python.autograph.core.naming": "Namer",
    "python.autograph.pyct.anno": "Basic Static getanno hasanno",
    "python.autograph.pyct.common_transformers.anf": "ANY ASTEdgePattern REPLACE transform",
    "python.autograph.pyct.compiler": "ast_to_object",
    "python.autograph.pyct.inspect_utils": "getfutureimports",
    "python.autograph.pyct.parser": "parse_entity",
    "python.autograph.pyct.qual_names": "QN",
    "python.autograph.pyct.templates": "replace replace_as_expression",
    "python.autograph.pyct.transformer": "Base EntityInfo",
    "python.debug": f"{_SESSIONS} {_HOOKS} DebugDumpDir WatchOptions watch_graph has_inf_or_nan",
    "python.debug.lib.debug_data": "DebugDumpDir has_inf_or_nan",
    "python.debug.wrappers.dumping_wrapper": "DumpingDebugWrapperSession",
    "python.debug.wrappers.framework": "WatchOptions",
    "python.debug.wrappers.hooks": _HOOKS,
    "python.debug.wrappers.local_cli_wrapper": "LocalCLIDebugWrapperSession",
    "contrib.cudnn_rnn.python.layers.cudnn_rnn": _CUDNN,
    "contrib.cudnn_rnn.python.ops.cudnn_rnn_ops": (
        f"{_CUDNN} CudnnGRUSaveable CudnnLSTMSaveable CudnnOpaqueParamsSaveable CudnnRNNReluSaveable "
        "CudnnRNNTanhSaveable CudnnParamsFormatConverterGRU CudnnParamsFormatConverterLSTM"
    ),
    "core.profiler.tfprof_log_pb2": "OpLogProto ProfileNode ProfileProto",
    "core.util.test_log_pb2": "BenchmarkEntries BenchmarkEntry TestResults",
    "contrib.all_reduce.python.all_reduce": _ALL_REDUCE,
    "python.distribute.all_reduce": _ALL_REDUCE,
    "python.eager.profiler": "Profiler ProfilerAlreadyRunningError ProfilerNotRunningError save start stop",
    "contrib.learn.python.learn.utils.saved_model_export_utils": (
        "build_standardized_signature_def extend_export_strategy garbage_collect_exports get_input_alternatives"
        " get_output_alternatives get_timestamped_export_dir make_best_model_export_strategy"
        " make_parsing_export_strategy"
    ),
    "contrib.tpu.python.ops.tpu_ops": _TPU_OPS,
    "contrib.tpu.python.tpu.device_assignment": "device_assignment",
    "contrib.tpu.python.tpu.tpu_feed": "InfeedQueue _PartitionedInfeedQueue",
    "contrib.tpu.python.tpu.training_loop": "repeat while_loop",
    "python.tpu.device_assignment": "device_assignment",
    "python.tpu.ops.tpu_ops": _TPU_OPS,
    "python.tpu.topology": "Topology",
    "python.tpu.tpu": "initialize_system replicate rewrite shutdown_system",
    "python.tpu.tpu_feed": "InfeedQueue _PartitionedInfeedQueue",
}


def fill(module: ModuleType, dotted: str, remedy: str) -> None:
    """Puts the names that can only be imported into the module of a path.

    Args:
      module: the module.
      dotted: its path below ``tensorflow``.
      remedy: what the errors say.
    """
    for name in NAMES.get(dotted, "").split():
        setattr(module, name, stand_in(f"tensorflow.{dotted}", name, remedy))


def stand_in(home: str, name: str, remedy: str) -> type:
    """Returns a class that can be derived from; its use raises NotImplementedError (an attribute: AttributeError)."""
    message = f"{home}.{name} can be imported, and no more: {remedy}"

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(message)

    members = {"__module__": home, "__doc__": message, "_said": message, "__new__": refuse}
    return _ImportOnly(name, (), members)


class _ImportOnly(type):
    _said: str  # also of classes that derive from it, which have docstrings of their own

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(cls._said if not name.startswith("__") else name, name=name, obj=cls)
