"""Loading SavedModels into a session (``tf.saved_model.loader``), and their main ops."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from tfmini import errors, protos
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation
from tfmini.graph.scoped_names import prepend_name_scope
from tfmini.graph.scoping import control_dependencies
from tfmini.ops.control import group
from tfmini.ops.variables.functions import global_variables_initializer, local_variables_initializer
from tfmini.train.checkpointing.graph_files import read_message
from tfmini.train.checkpointing.import_meta_graph import import_meta_graph
from tfmini.train.checkpointing.saved_model import constants
from tfmini.train.checkpointing.saved_model.assets import asset_feeds


@export(
    "tf.saved_model.contains_saved_model",
    "tf.saved_model.maybe_saved_model_directory",
    "tf.saved_model.loader.maybe_saved_model_directory",
)
def maybe_saved_model_directory(export_dir: Any) -> bool:
    """Whether a directory holds a SavedModel's file (``tf.saved_model.loader.maybe_saved_model_directory``)."""
    return _model_file(os.fsdecode(export_dir)) is not None


def _model_file(export_dir: str) -> str | None:
    names = (constants.SAVED_MODEL_FILENAME_PB, constants.SAVED_MODEL_FILENAME_PBTXT)
    paths = (os.path.join(export_dir, name) for name in names)
    return next((path for path in paths if os.path.exists(path)), None)


def parse_saved_model(export_dir: Any) -> Any:
    """The SavedModel message of a directory.

    Raises:
      OSError: when the file does not exist or cannot be read.
    """
    path = _model_file(os.fsdecode(export_dir))
    if path is None:
        names = f"{constants.SAVED_MODEL_FILENAME_PBTXT}|{constants.SAVED_MODEL_FILENAME_PB}"
        raise OSError(f"SavedModel file does not exist at: {os.fsdecode(export_dir)}/{{{names}}}")
    return read_message(path, protos.SavedModel())


@export("tf.saved_model.load", "tf.saved_model.loader.load")
def load(sess: Any, tags: Iterable[str], export_dir: Any, import_scope: str | None = None, **saver_kwargs: Any) -> Any:
    """Adds a meta graph of a SavedModel to a session's graph, restores its variables and runs its main op.

    Args:
      sess: the session.
      tags: the tags of the meta graph; all must match.
      export_dir: the SavedModel's directory.
      import_scope: a name scope for all imported names.
      **saver_kwargs: as in ``tf.train.import_meta_graph``.

    Returns:
      The MetaGraphDef (``tf.saved_model.loader.load``).

    Raises:
      OSError: when there is no SavedModel or it cannot be read.
      RuntimeError: when no meta graph has these tags, or it has several main ops.
      ValueError: when its graph is not valid.
      OpError: when the variables cannot be restored.
    """
    directory = os.fsdecode(export_dir)
    definition = _with_tags(parse_saved_model(directory), set(tags))
    main_op = _main_op_name(definition)
    what = f"The SavedModel in {directory} is not valid"
    with errors.reading(what, ValueError), sess.graph.as_default():
        saver = import_meta_graph(definition, import_scope=import_scope, **saver_kwargs)
        if saver is not None:
            saver.restore(sess, os.path.join(directory, constants.VARIABLES_DIRECTORY, constants.VARIABLES_FILENAME))
        if main_op is not None:
            op = get_default_graph().as_graph_element(prepend_name_scope(main_op, import_scope))
            sess.run(op, asset_feeds(directory, definition, import_scope))
    return definition


def _with_tags(model: Any, tags: set[str]) -> Any:
    for definition in model.meta_graphs:
        if set(definition.meta_info_def.tags) == tags:
            return definition
    available = [set(definition.meta_info_def.tags) for definition in model.meta_graphs]
    raise RuntimeError(
        f"MetaGraphDef associated with tags {', '.join(repr(tag) for tag in sorted(tags))} could not be found in"
        " SavedModel. To inspect available tag-sets in the SavedModel, please use the SavedModel CLI:"
        f" `saved_model_cli`\navailable_tags: {available}"
    )


def _main_op_name(definition: Any) -> str | None:
    if constants.INIT_OP_SIGNATURE_KEY in definition.signature_def:
        info = definition.signature_def[constants.INIT_OP_SIGNATURE_KEY].outputs[constants.INIT_OP_SIGNATURE_KEY]
        return str(info.name)
    for key in (constants.MAIN_OP_KEY, constants.LEGACY_INIT_OP_KEY):
        if key in definition.collection_def:
            names = definition.collection_def[key].node_list.value
            if len(names) != 1:
                raise RuntimeError(f"Expected exactly one SavedModel init op. Found: {list(names)}")
            return str(names[0])
    return None


@export("tf.saved_model.main_op.main_op")
def main_op() -> Operation:
    """An op that initializes variables and tables (``tf.saved_model.main_op.main_op``)."""
    tables = get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS)
    init_tables = group(*tables, name="init_all_tables")
    return group(global_variables_initializer(), local_variables_initializer(), init_tables)


@export("tf.saved_model.main_op_with_restore", "tf.saved_model.main_op.main_op_with_restore")
def main_op_with_restore(restore_op_name: Any) -> Operation:
    """`main_op` followed by the op ``restore_op_name`` (``tf.saved_model.main_op.main_op_with_restore``)."""
    with control_dependencies([main_op()]):
        return group(get_default_graph().as_graph_element(restore_op_name))
