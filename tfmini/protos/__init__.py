"""TensorFlow's file formats and option messages, as protobuf messages of our own package ``tfmini``.

``protos.GraphDef``, ``protos.ConfigProto`` and so on: every top-level message and enum is an attribute of
this package. Field numbers and types are TensorFlow 1.15's, so the bytes are interchangeable; the package and
file names are ours, so real TensorFlow can be imported beside us.

Nothing of protobuf is imported until the first attribute is asked for: it would double the time of
``import tfmini``, and a program that only builds and runs graphs needs no message.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tfmini.export import export_names

_NAMES_BY_MODULE = {
    "types_pb2": "DataType",
    "tensor_shape_pb2": "TensorShapeProto",
    "resource_handle_pb2": "ResourceHandleProto",
    "tensor_pb2": "TensorProto VariantTensorDataProto",
    "full_type_pb2": "FullTypeDef FullTypeId",
    "attr_value_pb2": "AttrValue NameAttrList",
    "node_def_pb2": "NodeDef",
    "op_def_pb2": "OpDef OpDeprecation OpList",
    "versions_pb2": "VersionDef",
    "function_pb2": "FunctionDef FunctionDefLibrary GradientDef RegisteredGradient",
    "graph_debug_info_pb2": "GraphDebugInfo",
    "graph_pb2": "GraphDef",
    "variable_pb2": "SaveSliceInfoDef VariableAggregation VariableDef VariableSynchronization",
    "tensor_slice_pb2": "TensorSliceProto",
    "device_attributes_pb2": "DeviceAttributes DeviceLocality InterconnectLink LocalLinks",
    "cost_graph_pb2": "CostGraphDef",
    "allocation_description_pb2": "AllocationDescription",
    "tensor_description_pb2": "TensorDescription",
    "step_stats_pb2": (
        "AllocationRecord AllocatorMemoryUsed DeviceStepStats MemoryStats NodeExecStats NodeOutput StepStats"
    ),
    "cluster_pb2": "ClusterDef JobDef",
    "debug_pb2": "DebugOptions DebugTensorWatch DebuggedSourceFile DebuggedSourceFiles",
    "verifier_config_pb2": "VerifierConfig",
    "rewriter_config_pb2": "AutoParallelOptions RewriterConfig ScopedAllocatorOptions",
    "config_pb2": (
        "CallableOptions ConfigProto GPUOptions GraphOptions OptimizerOptions RPCOptions RunMetadata "
        "RunOptions SessionMetadata TensorConnection ThreadPoolOptionProto"
    ),
    "tensorflow_server_pb2": "ServerDef",
    "summary_pb2": "DataClass HistogramProto Summary SummaryDescription SummaryMetadata",
    "event_pb2": (
        "Event LogMessage SessionLog SourceMetadata TaggedRunMetadata WatchdogConfig WorkerHealth "
        "WorkerHeartbeatRequest WorkerHeartbeatResponse WorkerShutdownMode"
    ),
    "feature_pb2": "BytesList Feature FeatureList FeatureLists Features FloatList Int64List",
    "example_pb2": "Example SequenceExample",
    "saver_pb2": "SaverDef",
    "checkpoint_state_pb2": "CheckpointState",
    "tensor_bundle_pb2": "BundleEntryProto BundleHeaderProto",
    "struct_pb2": (
        "BoundedTensorSpecProto DictValue ListValue NamedTupleValue NoneValue PairValue StructuredValue "
        "TensorSpecProto TupleValue TypeSpecProto"
    ),
    "trackable_object_graph_pb2": "RegisteredSaver TrackableObjectGraph",
    "saved_object_graph_pb2": (
        "CapturedTensor FunctionSpec SaveableObject SavedAsset SavedBareConcreteFunction "
        "SavedConcreteFunction SavedConstant SavedFunction SavedObject SavedObjectGraph SavedResource "
        "SavedUserObject SavedVariable"
    ),
    "meta_graph_pb2": "AssetFileDef CollectionDef MetaGraphDef SignatureDef TensorInfo",
    "saved_model_pb2": "SavedModel",
    "saved_tensor_slice_pb2": "SavedSlice SavedSliceMeta SavedTensorSliceMeta SavedTensorSlices",
    "error_codes_pb2": "Code",
    "queue_runner_pb2": "QueueRunnerDef",
    "control_flow_pb2": "CondContextDef ControlFlowContextDef ValuesDef WhileContextDef",
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Imports the message or enum ``name`` on first use (PEP 562) and keeps it as a plain attribute."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


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
