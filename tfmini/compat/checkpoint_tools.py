"""``tensorflow.python.tools``: what scripts call there to look into checkpoints and to freeze trained graphs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from tfmini import errors, protos
from tfmini.compat.file_io import GFile
from tfmini.compat.graph_functions import convert_variables_to_constants
from tfmini.core_types import PathLike
from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.graph.graph_util import extract_sub_graph
from tfmini.graph.importing import import_graph_def
from tfmini.runtime.client.session import Session
from tfmini.train.checkpointing import saved_model
from tfmini.train.checkpointing.graph_files import NewCheckpointReader, checkpoint_exists, read_message
from tfmini.train.checkpointing.saver import Saver, import_meta_graph

# ---- inspect_checkpoint ----------------------------------------


@export("tensorflow.python.tools.inspect_checkpoint.print_tensors_in_checkpoint_file")
def print_tensors_in_checkpoint_file(
    file_name: PathLike,
    tensor_name: str,
    all_tensors: bool,
    all_tensor_names: bool = False,
    count_exclude_pattern: str = "",
) -> None:
    """Prints the tensors of a checkpoint, and how many numbers it has; prints an error instead of raising it.

    Args:
      file_name: the checkpoint's prefix.
      tensor_name: the only tensor to print; empty: a line with type and shape for each.
      all_tensors, all_tensor_names: whether to print all values, or all names.
      count_exclude_pattern: a regular expression; tensors that match are not counted.
    """
    try:
        reader = NewCheckpointReader(file_name)
        shapes = reader.get_variable_to_shape_map()
        if all_tensors or all_tensor_names:
            for name in sorted(shapes):
                print("tensor_name: ", name)
                if all_tensors:
                    print(reader.get_tensor(name))
        elif tensor_name:
            print("tensor_name: ", tensor_name)
            print(reader.get_tensor(tensor_name))
        else:
            print(reader.debug_string().decode())
        _print_counts(shapes, count_exclude_pattern)
    except errors.OpError as error:
        print(error.message)


def _print_counts(shapes: dict[str, list[int]], pattern: str) -> None:
    left_out = [prod(shape) for name, shape in shapes.items() if pattern and re.search(pattern, name)]
    if left_out:
        print(f"# Excluding {len(left_out)} tensors ({sum(left_out)} params) that match {pattern} when counting.")
    print(f"# Total number of params: {sum(map(prod, shapes.values())) - sum(left_out)}")


# ---- freeze_graph ----------------------------------------


@export("tensorflow.python.tools.freeze_graph.freeze_graph")
def freeze_graph(
    input_graph: str, input_saver: str, input_binary: bool, input_checkpoint: str, output_node_names: str,
    restore_op_name: str, filename_tensor_name: str, output_graph: str, clear_devices: bool, initializer_nodes: str,
    variable_names_whitelist: str = "", variable_names_blacklist: str = "", input_meta_graph: str | None = None,
    input_saved_model_dir: str | None = None, saved_model_tags: str = "serve", checkpoint_version: int = 2,
) -> Any:  # fmt: skip
    """Writes a graph whose variables are constants with the values of a checkpoint, and returns its GraphDef.

    Args:
      input_graph: file of a GraphDef; ``input_meta_graph``: of a MetaGraphDef; ``input_saver``: of a SaverDef, which
        restores in place of one that is made here. One of the graph, the meta graph and ``input_saved_model_dir``.
      input_checkpoint: the checkpoint's prefix; a SavedModel has its own.
      output_node_names, initializer_nodes, saved_model_tags, variable_names_whitelist, variable_names_blacklist: names
        separated by commas: the ops that the graph must compute, the ops to run after the restoration, and the
        variables to convert, or not to convert.
      input_binary, restore_op_name, filename_tensor_name, checkpoint_version: without effect; a file is read as
        what it is, binary or text.
      output_graph: file for the result; empty: none.

    Returns:
      The GraphDef; -1, after a line on stdout, when there is no such checkpoint or no output is named.
    """
    graph_def = read_message(input_graph, protos.GraphDef()) if input_graph else None
    saver_def = read_message(input_saver, protos.SaverDef()) if input_saver else None
    meta_graph = read_message(input_meta_graph, protos.MetaGraphDef()) if input_meta_graph else None
    return freeze_graph_with_def_protos(
        graph_def, saver_def, input_checkpoint, output_node_names, restore_op_name, filename_tensor_name, output_graph,
        clear_devices, initializer_nodes, variable_names_whitelist, variable_names_blacklist, meta_graph,
        input_saved_model_dir, saved_model_tags.replace(" ", "").split(","), checkpoint_version,
    )  # fmt: skip


@export("tensorflow.python.tools.freeze_graph.freeze_graph_with_def_protos")
def freeze_graph_with_def_protos(
    input_graph_def: Any, input_saver_def: Any, input_checkpoint: str, output_node_names: str, restore_op_name: str,
    filename_tensor_name: str, output_graph: str, clear_devices: bool, initializer_nodes: str,
    variable_names_whitelist: str = "", variable_names_blacklist: str = "", input_meta_graph_def: Any = None,
    input_saved_model_dir: str | None = None, saved_model_tags: Sequence[str] | None = None,
    checkpoint_version: int = 2,
) -> Any:  # fmt: skip
    """`freeze_graph` of protos in place of files; for the arguments see there."""
    if not input_saved_model_dir and not checkpoint_exists(input_checkpoint):
        print(f"Input checkpoint '{input_checkpoint}' doesn't exist!")
        return -1
    if not output_node_names:
        print("You need to supply the name of a node to --output_node_names.")
        return -1
    source = input_meta_graph_def.graph_def if input_meta_graph_def is not None else input_graph_def
    with Graph().as_default() as graph, Session() as session:
        if input_saved_model_dir:
            source = saved_model.load(session, list(saved_model_tags or ["serve"]), input_saved_model_dir).graph_def
        elif input_meta_graph_def is not None:
            saver = import_meta_graph(input_meta_graph_def, clear_devices=clear_devices) or Saver()
            saver.restore(session, input_checkpoint)
        else:
            _restore(graph, session, _copy(source, clear_devices), input_saver_def, input_checkpoint)
        if initializer_nodes:
            session.run(initializer_nodes.replace(" ", "").split(","))
        frozen = convert_variables_to_constants(
            session, _copy(source, clear_devices), output_node_names.replace(" ", "").split(","),
            _names(variable_names_whitelist), _names(variable_names_blacklist),
        )  # fmt: skip
    if output_graph:
        with GFile(output_graph, "wb") as file:
            file.write(frozen.SerializeToString())
    return frozen


def _names(listed: str) -> list[str] | None:
    return listed.replace(" ", "").split(",") if listed else None


def _restore(graph: Graph, session: Session, graph_def: Any, saver_def: Any, checkpoint: str) -> None:
    """Imports a graph and restores its variables, by its own saver if there is a SaverDef."""
    import_graph_def(graph_def, name="")
    if saver_def is not None:
        Saver(saver_def=saver_def).restore(session, checkpoint)
        return
    stored = NewCheckpointReader(checkpoint).get_variable_to_shape_map()
    present = {operation.name for operation in graph.get_operations()}
    Saver({name: graph.get_tensor_by_name(f"{name}:0") for name in stored if name in present}).restore(
        session, checkpoint
    )


def _copy(graph_def: Any, clears_devices: bool) -> Any:
    made = protos.GraphDef()
    made.CopyFrom(graph_def)
    for node in made.node if clears_devices else ():
        node.device = ""
    return made


@export("tensorflow.python.tools.saved_model_utils.get_meta_graph_def")
def get_meta_graph_def(saved_model_dir: PathLike, tag_set: str) -> Any:
    """The graph of a SavedModel with exactly these tags, given as "a,b".

    Raises:
      RuntimeError: no graph has them.
    """
    model = saved_model.parse_saved_model(saved_model_dir)
    return saved_model.with_tags(model, {*tag_set.split(",")})


# ---- strip_unused ----------------------------------------


@export("tensorflow.python.tools.strip_unused_lib.strip_unused")
def strip_unused(
    input_graph_def: Any, input_node_names: Sequence[str], output_node_names: Sequence[str],
    placeholder_type_enum: int | Sequence[int],
) -> Any:  # fmt: skip
    """The part of a GraphDef that computes some nodes from others, which become placeholders.

    Args:
      input_graph_def: the GraphDef.
      input_node_names: the nodes to feed.
      output_node_names: the nodes to compute.
      placeholder_type_enum: the DataType of the placeholders, one or one for each.

    Raises:
      ValueError: an input has the name of a tensor (``node:0``).
      KeyError: an input is not in the graph.
      AssertionError: an output is not in the graph.
    """
    for name in input_node_names:
        if ":" in name:
            raise ValueError(f"Name '{name}' appears to refer to a Tensor, not a Operation.")
    absent = {*input_node_names} - {node.name for node in input_graph_def.node}
    if absent:
        raise KeyError(f"The following input nodes were not found: {absent}")
    single = isinstance(placeholder_type_enum, int)
    types = [placeholder_type_enum] * len(input_node_names) if single else list(placeholder_type_enum)  # type: ignore[arg-type]
    fed = dict(zip(input_node_names, types))
    nodes = [_fed(node, fed[node.name]) if node.name in fed else node for node in input_graph_def.node]
    return extract_sub_graph(protos.GraphDef(node=nodes), list(output_node_names))


def _fed(node: Any, dtype: Any) -> Any:
    """A placeholder in place of a node."""
    made = protos.NodeDef(op="Placeholder", name=node.name)
    made.attr["dtype"].type = dtype
    for name in ("shape", "_output_shapes"):
        if name in node.attr:
            made.attr[name].CopyFrom(node.attr[name])
    return made


@export("tensorflow.python.tools.strip_unused_lib.strip_unused_from_files")
def strip_unused_from_files(
    input_graph: str, input_binary: bool, output_graph: str, output_binary: bool, input_node_names: str,
    output_node_names: str, placeholder_type_enum: int | Sequence[int],
) -> Any:  # fmt: skip
    """`strip_unused` of a GraphDef in a file, binary or text; names stand with commas between them."""
    graph_def = read_message(input_graph, protos.GraphDef())
    found = strip_unused(
        graph_def, input_node_names.split(","), output_node_names.split(","), placeholder_type_enum
    )  # fmt: skip
    with GFile(output_graph, "wb" if output_binary else "w") as file:
        file.write(found.SerializeToString() if output_binary else str(found))
    return found
