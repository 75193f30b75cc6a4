"""TensorFlow's file formats and option messages, as protobuf messages of our own package ``tfmini``.

``protos.GraphDef``, ``protos.ConfigProto`` and so on: every top-level message and enum is an attribute of
this package. Field numbers and types are TensorFlow 1.15's, so the bytes are interchangeable; the package and
file names are ours, so real TensorFlow can be imported beside us. Only where ``import tensorflow`` is tfmini are they
TensorFlow's (`use_tensorflow_names`).

Nothing of protobuf is imported until the first attribute is asked for: it would double the time of
``import tfmini``, and a program that only builds and runs graphs needs no message.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfmini.export import export_names

if TYPE_CHECKING:
    from tfmini.protos.tensorflow_files import TensorFlowFiles

# Our module -> (TensorFlow's file, whose part it has -> its messages and enums).
FILES = {
    "graph_pb2": {
        "types": "DataType",
        "tensor_shape": "TensorShapeProto",
        "resource_handle": "ResourceHandleProto",
        "tensor": "TensorProto VariantTensorDataProto",
        "full_type": "FullTypeDef FullTypeId",
        "attr_value": "AttrValue NameAttrList",
        "node_def": "NodeDef",
        "op_def": "OpDef OpDeprecation OpList",
        "versions": "VersionDef",
        "function": "FunctionDef FunctionDefLibrary GradientDef RegisteredGradient",
        "graph_debug_info": "GraphDebugInfo",
        "graph": "GraphDef",
    },
    "saved_model_pb2": {
        "variable": "SaveSliceInfoDef VariableAggregation VariableDef VariableSynchronization",
        "saver": "SaverDef",
        "queue_runner": "QueueRunnerDef",
        "hparam": "HParamDef",
        "control_flow": "CondContextDef ControlFlowContextDef ValuesDef WhileContextDef",
        "struct": (
            "BoundedTensorSpecProto DictValue ListValue NamedTupleValue NoneValue PairValue StructuredValue "
            "TensorSpecProto TupleValue TypeSpecProto"
        ),
        "trackable_object_graph": "RegisteredSaver TrackableObjectGraph",
        "saved_object_graph": (
            "CapturedTensor FunctionSpec SaveableObject SavedAsset SavedBareConcreteFunction "
            "SavedConcreteFunction SavedConstant SavedFunction SavedObject SavedObjectGraph SavedResource "
            "SavedUserObject SavedVariable"
        ),
        "named_tensor": "NamedTensorProto",
        "meta_graph": "AssetFileDef CollectionDef MetaGraphDef SignatureDef TensorInfo",
        "saved_model": "SavedModel",
    },
    "checkpoint_pb2": {
        "tensor_slice": "TensorSliceProto",
        "tensor_bundle": "BundleEntryProto BundleHeaderProto",
        "saved_tensor_slice": "SavedSlice SavedSliceMeta SavedTensorSliceMeta SavedTensorSlices",
        "checkpoint_state": "CheckpointState",
    },
    "config_pb2": {
        "cluster": "ClusterDef JobDef",
        "device_attributes": "DeviceAttributes DeviceLocality InterconnectLink LocalLinks",
        "allocation_description": "AllocationDescription",
        "tensor_description": "TensorDescription",
        "step_stats": (
            "AllocationRecord AllocatorMemoryUsed DeviceStepStats MemoryStats NodeExecStats NodeOutput StepStats"
        ),
        "cost_graph": "CostGraphDef",
        "debug": "DebugOptions DebugTensorWatch DebuggedSourceFile DebuggedSourceFiles",
        "verifier_config": "VerifierConfig",
        "rewriter_config": "AutoParallelOptions RewriterConfig ScopedAllocatorOptions",
        "config": (
            "CallableOptions ConfigProto GPUOptions GraphOptions OptimizerOptions RPCOptions RunMetadata "
            "RunOptions SessionMetadata TensorConnection ThreadPoolOptionProto"
        ),
        "tensorflow_server": "ServerDef",
    },
    "error_codes_pb2": {
        "error_codes": "Code",
    },
    "summary_pb2": {
        "summary": "DataClass HistogramProto Summary SummaryDescription SummaryMetadata",
        "event": (
            "Event LogMessage SessionLog SourceMetadata TaggedRunMetadata WatchdogConfig WorkerHealth "
            "WorkerHeartbeatRequest WorkerHeartbeatResponse WorkerShutdownMode"
        ),
    },
    "example_pb2": {
        "feature": "BytesList Feature FeatureList FeatureLists Features FloatList Int64List",
        "example": "Example SequenceExample",
    },
}
MODULE_OF = {name: module for module, files in FILES.items() for names in files.values() for name in names.split()}

__all__ = list(MODULE_OF)


def __getattr__(name: str) -> Any:
    """Imports the message or enum ``name`` on first use (PEP 562) and keeps it as a plain attribute."""
    module = MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    files = _tensorflow_files()
    value = getattr(files.with_name(name) if files else import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def module_with(file: str) -> ModuleType | None:
    """Returns the module that has the messages of a file of TensorFlow, such as ``tensor_pb2``; None: there is none."""
    stem = file.removesuffix("_pb2")
    module = next((module for module, stems in FILES.items() if stem in stems), None)
    if module is None:
        return None
    files = _tensorflow_files()
    return files.module(stem) if files else import_module(f"{__name__}.{module}")


_wants_tensorflow_names = False


def use_tensorflow_names() -> None:
    """Gives the messages TensorFlow's own names in protobuf's pool, if none has been used before.

    For a process in which ``import tensorflow`` is tfmini: files of other projects that depend on TensorFlow's can be
    loaded there. Where messages have been used already, all keep our names.
    """
    global _wants_tensorflow_names
    _wants_tensorflow_names = True


@cache  # the first message decides for all, so that there is one class of each
def _tensorflow_files() -> TensorFlowFiles | None:
    if not _wants_tensorflow_names:
        return None
    return import_module(f"{__name__}.tensorflow_files").TensorFlowFiles(FILES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


export_names(
    "tf",
    "AttrValue ConfigProto GPUOptions GraphDef GraphOptions HistogramProto LogMessage MetaGraphDef NameAttrList "
    "NodeDef OptimizerOptions RunMetadata RunOptions SummaryMetadata TensorInfo",
)
export_names("tf tf.summary", "Event SessionLog Summary")
export_names("tf.summary", "SummaryDescription TaggedRunMetadata")
export_names(
    "tf.train",
    "BytesList ClusterDef Example Feature FeatureList FeatureLists Features FloatList Int64List JobDef SaverDef "
    "SequenceExample ServerDef",
)
