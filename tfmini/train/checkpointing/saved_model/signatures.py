"""Signatures of models: SignatureDef and TensorInfo messages for the inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfmini import dtypes, protos
from tfmini.export import export
from tfmini.graph.attr_values import shape_proto
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Tensor
from tfmini.graph.scoped_names import prepend_name_scope
from tfmini.ops.sparse.sparse_tensor import SparseTensor
from tfmini.shapes import as_raw
from tfmini.train.checkpointing.saved_model import constants

_STRING, _FLOAT = dtypes.string.as_datatype_enum, dtypes.float32.as_datatype_enum


@export("tf.saved_model.build_tensor_info", "tf.saved_model.utils.build_tensor_info")
def build_tensor_info(tensor: Any) -> Any:
    """The TensorInfo of a tensor or sparse tensor (``tf.saved_model.build_tensor_info``)."""
    dtype: Any = dtypes.as_dtype(tensor.dtype).as_datatype_enum
    info = protos.TensorInfo(dtype=dtype, tensor_shape=shape_proto(as_raw(tensor.get_shape())))
    if isinstance(tensor, SparseTensor):
        info.coo_sparse.values_tensor_name = tensor.values.name
        info.coo_sparse.indices_tensor_name = tensor.indices.name
        info.coo_sparse.dense_shape_tensor_name = tensor.dense_shape.name
    else:
        info.name = tensor.name
    return info


@export("tf.saved_model.get_tensor_from_tensor_info", "tf.saved_model.utils.get_tensor_from_tensor_info")
def get_tensor_from_tensor_info(tensor_info: Any, graph: Any = None, import_scope: str | None = None) -> Any:
    """The tensor that a TensorInfo names (``tf.saved_model.get_tensor_from_tensor_info``).

    Raises:
      KeyError: when the graph has no such tensor.
      ValueError: when the message names no tensor.
    """
    graph = graph or get_default_graph()

    def find(name: str) -> Any:
        return graph.get_tensor_by_name(prepend_name_scope(name, import_scope))

    encoding = tensor_info.WhichOneof("encoding")
    if encoding == "name":
        return find(tensor_info.name)
    if encoding == "coo_sparse":
        names = tensor_info.coo_sparse
        return SparseTensor(
            find(names.indices_tensor_name), find(names.values_tensor_name), find(names.dense_shape_tensor_name)
        )
    raise ValueError(f"Invalid TensorInfo.encoding: {encoding}")


@export("tf.saved_model.build_signature_def", "tf.saved_model.signature_def_utils.build_signature_def")
def build_signature_def(
    inputs: Mapping[str, Any] | None = None, outputs: Mapping[str, Any] | None = None, method_name: str | None = None
) -> Any:
    """A SignatureDef with TensorInfos by name (``tf.saved_model.build_signature_def``)."""
    made = protos.SignatureDef()
    for key, info in (inputs or {}).items():
        made.inputs[key].CopyFrom(info)
    for key, info in (outputs or {}).items():
        made.outputs[key].CopyFrom(info)
    if method_name is not None:
        made.method_name = method_name
    return made


def _typed_info(tensor: Any, enum: int, complaint: str) -> Any:
    info = build_tensor_info(tensor)
    if info.dtype != enum:
        raise ValueError(complaint)
    return info


def _examples(examples: Any, kind: str) -> Any:
    if examples is None:
        raise ValueError(f"{kind} examples cannot be None.")
    complaint = f"{kind} examples must be a string Tensor."
    if not isinstance(examples, Tensor):
        raise ValueError(complaint)
    return _typed_info(examples, _STRING, complaint)


@export("tf.saved_model.regression_signature_def", "tf.saved_model.signature_def_utils.regression_signature_def")
def regression_signature_def(examples: Any, predictions: Any) -> Any:
    """The signature from serialized Examples to a float tensor (``tf.saved_model.regression_signature_def``).

    Raises:
      ValueError: when a tensor is missing or has another type.
    """
    inputs = {constants.REGRESS_INPUTS: _examples(examples, "Regression")}
    if predictions is None:
        raise ValueError("Regression predictions cannot be None.")
    output = _typed_info(predictions, _FLOAT, "Regression output must be a float Tensor.")
    return build_signature_def(inputs, {constants.REGRESS_OUTPUTS: output}, constants.REGRESS_METHOD_NAME)


@export(
    "tf.saved_model.classification_signature_def", "tf.saved_model.signature_def_utils.classification_signature_def"
)
def classification_signature_def(examples: Any, classes: Any, scores: Any) -> Any:
    """The signature from serialized Examples to classes and scores (``tf.saved_model.classification_signature_def``).

    Raises:
      ValueError: when the examples, or both classes and scores, are missing, or a tensor has another type.
    """
    inputs = {constants.CLASSIFY_INPUTS: _examples(examples, "Classification")}
    if classes is None and scores is None:
        raise ValueError("Classification classes and scores cannot both be None.")
    outputs = {}
    if classes is not None:
        complaint = "Classification classes must be a string Tensor."
        outputs[constants.CLASSIFY_OUTPUT_CLASSES] = _typed_info(classes, _STRING, complaint)
    if scores is not None:
        complaint = "Classification scores must be a float Tensor."
        outputs[constants.CLASSIFY_OUTPUT_SCORES] = _typed_info(scores, _FLOAT, complaint)
    return build_signature_def(inputs, outputs, constants.CLASSIFY_METHOD_NAME)


@export("tf.saved_model.predict_signature_def", "tf.saved_model.signature_def_utils.predict_signature_def")
def predict_signature_def(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
    """The signature with any inputs and outputs (``tf.saved_model.predict_signature_def``).

    Raises:
      ValueError: when there are no inputs or no outputs.
    """
    if not inputs:
        raise ValueError("Prediction inputs cannot be None or empty.")
    if not outputs:
        raise ValueError("Prediction outputs cannot be None or empty.")
    return build_signature_def(
        {key: build_tensor_info(tensor) for key, tensor in inputs.items()},
        {key: build_tensor_info(tensor) for key, tensor in outputs.items()},
        constants.PREDICT_METHOD_NAME,
    )


# Method -> (inputs, outputs) with their required types; all inputs and at least one output must be present.
_RULES = {
    constants.REGRESS_METHOD_NAME: ({constants.REGRESS_INPUTS: _STRING}, {constants.REGRESS_OUTPUTS: _FLOAT}),
    constants.CLASSIFY_METHOD_NAME: (
        {constants.CLASSIFY_INPUTS: _STRING},
        {constants.CLASSIFY_OUTPUT_CLASSES: _STRING, constants.CLASSIFY_OUTPUT_SCORES: _FLOAT},
    ),
}


@export("tf.saved_model.is_valid_signature", "tf.saved_model.signature_def_utils.is_valid_signature")
def is_valid_signature(signature_def: Any) -> bool:
    """Whether a SignatureDef is of one of the three kinds for serving (``tf.saved_model.is_valid_signature``)."""
    if signature_def is None or not signature_def.inputs or not signature_def.outputs:
        return False
    if signature_def.method_name == constants.PREDICT_METHOD_NAME:
        return True
    rule = _RULES.get(signature_def.method_name)
    if rule is None:
        return False
    inputs = {key: info.dtype for key, info in signature_def.inputs.items()}
    outputs = {key: info.dtype for key, info in signature_def.outputs.items()}
    return inputs == rule[0] and outputs.items() <= rule[1].items()
