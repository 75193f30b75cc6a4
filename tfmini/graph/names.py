"""The standard collection names (``tf.GraphKeys``)."""

from __future__ import annotations

import re

from tfmini.export import export


@export("tf.GraphKeys")
class GraphKeys:
    """Names of the collections that the library itself reads and writes."""

    GLOBAL_VARIABLES = "variables"
    VARIABLES = "variables"
    LOCAL_VARIABLES = "local_variables"
    METRIC_VARIABLES = "metric_variables"
    MODEL_VARIABLES = "model_variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    SUMMARIES = "summaries"
    QUEUE_RUNNERS = "queue_runners"
    TABLE_INITIALIZERS = "table_initializer"
    ASSET_FILEPATHS = "asset_filepaths"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    REGULARIZATION_LOSSES = "regularization_losses"
    CONCATENATED_VARIABLES = "concatenated_variables"
    SAVERS = "savers"
    WEIGHTS = "weights"
    BIASES = "biases"
    ACTIVATIONS = "activations"
    UPDATE_OPS = "update_ops"
    LOSSES = "losses"
    SAVEABLE_OBJECTS = "saveable_objects"
    RESOURCES = "resources"
    LOCAL_RESOURCES = "local_resources"
    TRAINABLE_RESOURCE_VARIABLES = "trainable_resource_variables"
    INIT_OP = "init_op"
    LOCAL_INIT_OP = "local_init_op"
    READY_OP = "ready_op"
    READY_FOR_LOCAL_INIT_OP = "ready_for_local_init_op"
    SUMMARY_OP = "summary_op"
    GLOBAL_STEP = "global_step"
    EVAL_STEP = "eval_step"
    TRAIN_OP = "train_op"
    COND_CONTEXT = "cond_context"
    WHILE_CONTEXT = "while_context"
    _SUMMARY_COLLECTION = "_SUMMARY_V2"
    _STREAMING_MODEL_PORTS = "streaming_model_ports"
    _VARIABLE_COLLECTIONS = [GLOBAL_VARIABLES, LOCAL_VARIABLES, METRIC_VARIABLES, MODEL_VARIABLES,
                             TRAINABLE_VARIABLES, MOVING_AVERAGE_VARIABLES, CONCATENATED_VARIABLES,
                             TRAINABLE_RESOURCE_VARIABLES]  # fmt: skip


# ---- Removal and addition of a name scope, for the export and import of a part of a graph --------------------------
# A name may be that of an op, a tensor, a control input (``^name``) or a colocation group (``loc:@name``).

_MARK = re.compile(r"(\^|loc:@|)(.*)", re.S)


def _parts(name: str) -> tuple[str, str]:
    match = _MARK.match(name)
    return (match[1], match[2]) if match else ("", name)


def strip_name_scope(name: str, export_scope: str | None) -> str:
    """Returns ``name`` relative to ``export_scope``. A name outside of the scope stays as it is."""
    if not export_scope:
        return name
    mark, bare = _parts(name)
    prefix = export_scope.rstrip("/") + "/"
    return mark + bare[len(prefix) :] if bare.startswith(prefix) else name


def prepend_name_scope(name: str, import_scope: str | None) -> str:
    """Returns ``name`` with ``import_scope`` in front."""
    if not import_scope:
        return name
    mark, bare = _parts(name)
    return f"{mark}{import_scope.rstrip('/')}/{bare}"


# Beside the first variable of a model: what its chief notes for the other tasks. No variable of the user's model.
MODEL_RECORD = "/tfmini_model_record"
