"""``tf.train.init_from_checkpoint``: makes the initializers of variables read a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini import dtypes
from tfmini.core_types import PathLike, TensorLike
from tfmini.export import export
from tfmini.graph.conversion import internal_convert
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation
from tfmini.graph.scoping import device
from tfmini.layers.contrib.model_variables import get_variable_full_name, get_variables
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.identity import placeholder
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.slicing import slice as slice_of
from tfmini.ops.control import group, no_op
from tfmini.ops.io.checkpoint_ops import restore_v2
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.initializers import zeros_initializer
from tfmini.ops.variables.partitioned_variable import PartitionedVariable
from tfmini.ops.variables.store import default_variable_store
from tfmini.ops.vocabulary_tables import generate_vocab_remapping, load_and_remap_matrix
from tfmini.train.checkpointing.graph_files import checkpoint_file, load_checkpoint
from tfmini.train.checkpointing.object_graph import keys_by_name
from tfmini.train.checkpointing.saver_builder import named_saveables, saveables_for

_log = logging.getLogger("tensorflow")
Parts = list[Any]  # one variable, or the parts of one


@export("tf.train.init_from_checkpoint")
def init_from_checkpoint(ckpt_dir_or_file: PathLike, assignment_map: Mapping[str, Any]) -> None:
    """Makes the initializers of variables load from a checkpoint (``tf.train.init_from_checkpoint``).

    Args:
      ckpt_dir_or_file: a checkpoint's prefix, or a directory whose newest checkpoint is used.
      assignment_map: tensor in the checkpoint -> variable, its name, or the list of its parts; or scope in the
        checkpoint -> scope of variables, both with a trailing ``/``. ``/`` is the root scope.

    Raises:
      ValueError: when a tensor is missing or has another shape, or a scope is mapped to a name.
    """
    prefix = checkpoint_file(ckpt_dir_or_file)
    shapes = load_checkpoint(prefix).get_variable_to_shape_map()
    loader = _Loader(prefix, str(ckpt_dir_or_file), shapes, default_variable_store()._vars)
    for tensor_name, target in sorted(assignment_map.items(), key=lambda item: item[0]):
        parts = loader.variables(target)
        if parts is not None:
            loader.load_one(parts, tensor_name)
        else:
            loader.load_scope(target, tensor_name)


@export("tf.contrib.framework.init_from_checkpoint")
def init_from_checkpoint_dir(checkpoint_dir: PathLike, assignment_map: Mapping[str, Any]) -> None:
    """`init_from_checkpoint`, with another name of the argument (``tf.contrib.framework.init_from_checkpoint``)."""
    init_from_checkpoint(checkpoint_dir, assignment_map)


class _Loader:
    def __init__(self, prefix: str, label: str, shapes: dict[str, list[int]], store: Mapping[str, Any]) -> None:
        self.prefix = prefix
        self.label = label
        self.shapes = shapes
        self.store = store

    def variables(self, target: Any) -> Parts | None:
        """The variable or parts that a value of the map names; None for a scope."""
        if isinstance(target, Variable):
            return [target]
        if isinstance(target, (list, PartitionedVariable)):
            return list(target)
        if target in self.store:
            return [self.store[target]]
        parts: Parts = []
        while f"{target}/part_{len(parts)}" in self.store:
            parts.append(self.store[f"{target}/part_{len(parts)}"])
        return parts or None

    def load_one(self, parts: Parts, tensor_name: str) -> None:
        if tensor_name not in self.shapes:
            raise ValueError(f"Tensor {tensor_name} is not found in {self.label} checkpoint {self.shapes}")
        if len(parts) == 1 and parts[0]._save_slice_info is None:
            self._check_shape(parts[0], tensor_name)
        self._set(parts, tensor_name)

    def _check_shape(self, variable: Variable, tensor_name: str) -> None:
        shape = self.shapes[tensor_name]
        if not variable.get_shape().is_compatible_with(shape):
            raise ValueError(
                f"Shape of variable {variable.name} ({variable.get_shape()}) doesn't match with shape of tensor"
                f" {tensor_name} ({shape}) from checkpoint reader."
            )

    def load_scope(self, target: str, tensor_scope: str) -> None:
        scope = target.rpartition("/")[0]
        if not tensor_scope.endswith("/"):
            raise ValueError(
                f"Assignment map with scope only name {scope} should map to scope only {tensor_scope}. Should be"
                " 'scope/': 'other_scope/'."
            )
        inside = f"{scope}/" if scope else ""
        names = {name.partition("/part_")[0] for name in self.store if name.startswith(inside)}
        for name in sorted(names):
            relative = name[len(inside) :]
            full = relative if tensor_scope == "/" else tensor_scope + relative
            if full not in self.shapes:
                raise ValueError(
                    f"Tensor {full} ({relative} in {tensor_scope}) is not found in {self.label} checkpoint"
                )
            self._set(self.variables(name) or [], full)

    def _set(self, parts: Parts, tensor_name: str) -> None:
        for part in parts:
            info = part._save_slice_info
            _set_initializer(part, self.prefix, tensor_name, "" if info is None else info.spec)
        names = ",".join(part.name for part in parts)
        _log.debug("Initialize variable %s from checkpoint %s with %s", names, self.label, tensor_name)


def _set_initializer(variable: Variable, prefix: str, tensor_name: str, spec: str) -> None:
    """Replaces a variable's initializer with an assignment of the checkpoint's value."""
    with device(variable.device), device("/cpu:0"):
        restored = restore_v2(
            prefix, [tensor_name], [spec], dtypes=[variable.dtype.base_dtype], name="checkpoint_initializer"
        )[0]
        ((name, item),) = named_saveables([variable]).items()
        (saveable,) = saveables_for(item, name)
    assigned = saveable.restore([restored], None)
    restored.set_shape(variable.shape)
    variable._initializer_op = getattr(assigned, "op", assigned)
    variable._initial_value = restored


# ---- assign from checkpoint ----------------------------------------
# ``tf.contrib.framework.assign_from_…``: assigns values from Python or a checkpoint to variables, with feeds.

Feeds = dict[Any, Any]


def _assigned(variable: Variable, value: TensorLike, feeds: Feeds) -> Operation:
    """An assignment from a new placeholder; adds the placeholder's value to ``feeds``."""
    source = placeholder(variable.dtype.base_dtype, variable.shape, name=f"placeholder/{variable.op.name}")
    feeds[source] = value
    return variable.assign(source)  # type: ignore[no-any-return]


@export("tf.contrib.framework.assign_from_values", "tf.contrib.slim.assign_from_values")
def assign_from_values(var_names_to_values: Mapping[str, Any]) -> tuple[Operation, Feeds]:
    """(an op that assigns all values, its feeds) (``tf.contrib.framework.assign_from_values``).

    Args:
      var_names_to_values: name of a variable's op -> array with the same number of elements.

    Raises:
      ValueError: when a name does not identify exactly one variable.
    """
    feeds: Feeds = {}
    assigned = []
    for name, value in var_names_to_values.items():
        variable = _named(name)
        assigned.append(_assigned(variable, np.reshape(value, variable.shape.as_list()), feeds))
    return group(*assigned), feeds


def _named(name: str) -> Any:
    candidates = get_variables(name)
    if not candidates:
        raise ValueError(f"Variable {name} wasn't found")
    if len(candidates) == 1:
        return candidates[0]
    exact = [variable for variable in candidates if variable.op.name == name]
    if not exact:
        raise ValueError(f"Variable {name} doesn't uniquely identify a variable")
    return exact[0]


@export("tf.contrib.framework.assign_from_values_fn", "tf.contrib.slim.assign_from_values_fn")
def assign_from_values_fn(var_names_to_values: Mapping[str, Any]) -> Callable[[Any], Any]:
    """A function of a session that runs `assign_from_values`."""
    op, feeds = assign_from_values(var_names_to_values)
    return lambda session: session.run(op, feeds)


def _grouped(var_list: Sequence[Any]) -> dict[str, list[Any]]:
    """Name in the checkpoint -> the variable, or the parts of a partitioned one."""
    if isinstance(var_list, Mapping):
        return {name: list(v) if isinstance(v, (list, tuple)) else [v] for name, v in var_list.items()}
    grouped: dict[str, list[Any]] = {}
    for variable in var_list:
        grouped.setdefault(get_variable_full_name(variable), []).append(variable)
    return grouped


def _restored(variable: Variable, value: Any, name: str, feeds: Feeds, reshape: bool = False) -> Operation:
    """Assigns a tensor of the checkpoint: all of it, or the slice of a partition."""
    lengths = variable.shape.as_list()
    info = getattr(variable, "_save_slice_info", None)
    if info is not None:
        spans = zip(info.var_offset, info.var_shape, strict=True)
        value = np.reshape(value[tuple(slice(o, o + n) for o, n in spans)], lengths)
    elif reshape:
        value = np.reshape(value, lengths)
    elif tuple(lengths) != value.shape:
        raise ValueError(
            f"Total size of new array must be unchanged for {name} lh_shape: [{value.shape}],"
            f" rh_shape: [{variable.shape}]"
        )
    return _assigned(variable, value, feeds)


@export("tf.contrib.framework.assign_from_checkpoint", "tf.contrib.slim.assign_from_checkpoint")
def assign_from_checkpoint(
    model_path: PathLike, var_list: Sequence[Any], ignore_missing_vars: bool = False
) -> tuple[Operation, Feeds]:
    """(an op that restores variables, its feeds) (``tf.contrib.framework.assign_from_checkpoint``).

    Args:
      model_path: the checkpoint's prefix, or a directory.
      var_list: a list of variables, or name in the checkpoint -> variable or list of its parts.
      ignore_missing_vars: log a warning, rather than raise, for variables that are not in the checkpoint.

    Raises:
      ValueError: when the checkpoint has no value for a variable, or one of another shape.
    """
    reader = load_checkpoint(model_path)
    feeds: Feeds = {}
    assigned = []
    for name, variables in _grouped(var_list).items():
        if not reader.has_tensor(name):
            missing = f"Checkpoint is missing variable [{name}]"
            if not ignore_missing_vars:
                raise ValueError(missing)
            _log.warning(missing)
            continue
        value = reader.get_tensor(name)
        assigned += [_restored(variable, value, name, feeds) for variable in variables]
    return group(*assigned) if assigned else no_op(), feeds


@export("tf.contrib.framework.assign_from_checkpoint_fn", "tf.contrib.slim.assign_from_checkpoint_fn")
def assign_from_checkpoint_fn(
    model_path: PathLike, var_list: Sequence[Any], ignore_missing_vars: bool = False, reshape_variables: bool = False
) -> Callable[[Any], Any] | None:
    """A function of a session that restores variables; None if the checkpoint has none of them.

    TF name: ``tf.contrib.framework.assign_from_checkpoint_fn``.

    Args:
      reshape_variables: reshape values of another shape with the same number of elements.
      The others are those of `assign_from_checkpoint`.

    Raises:
      ValueError: when ``var_list`` is empty.
    """
    if not var_list:
        raise ValueError("var_list cannot be empty")
    reader = load_checkpoint(model_path)
    grouped = _grouped(var_list)
    missing = [name for name in grouped if not reader.has_tensor(name)]
    if missing and ignore_missing_vars:
        for name in missing:
            _log.warning("Variable %s missing in checkpoint %s", name, model_path)
        grouped = {name: parts for name, parts in grouped.items() if name not in missing}
    if not grouped:
        _log.warning("No Variables to restore")
        return None
    feeds: Feeds = {}
    assigned = []
    for name, variables in grouped.items():
        value = reader.get_tensor(name)
        assigned += [_restored(variable, value, name, feeds, reshape_variables) for variable in variables]
    op = group(*assigned)
    return lambda session: session.run(op, feeds)


# ---- warm starting ----------------------------------------
# ``tf.train.warm_start``: initializes variables from another model's checkpoint, with remapped vocabularies.


class _VocabInfo(NamedTuple):
    new_vocab: str
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: str
    old_vocab_size: int = -1
    backup_initializer: Callable[..., Any] | None = None
    axis: int = 0


@export("tf.estimator.VocabInfo", "tf.train.VocabInfo")
class VocabInfo(_VocabInfo):
    """The vocabularies of a variable's rows or columns, now and in the checkpoint (``tf.train.VocabInfo``).

    Attributes:
      new_vocab, new_vocab_size: a file with one word per line, and the number of words to use.
      num_oov_buckets: number of further rows or columns, for out-of-vocabulary words.
      old_vocab, old_vocab_size: the same for the checkpoint; -1 means all lines.
      backup_initializer: initializer for words that are not in the checkpoint; default: zeros.
      axis: 0 if words are rows, 1 if they are columns.

    Raises:
      ValueError: when the axis is neither 0 nor 1.
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> VocabInfo:
        made = super().__new__(cls, *args, **kwargs)
        if made.axis not in (0, 1):
            text = "The only supported values for the axis argument are 0 and 1.  Provided axis:"
            raise ValueError(f"{text} {made.axis}")
        return made


@export("tf.train.warm_start")
def warm_start(
    ckpt_to_initialize_from: str | bytes,
    vars_to_warm_start: str | Sequence[Any] | None = ".*",
    var_name_to_vocab_info: Mapping[str, VocabInfo] | None = None,
    var_name_to_prev_var_name: Mapping[str, str] | None = None,
) -> None:
    """Makes the initializers of variables load from a checkpoint (``tf.train.warm_start``).

    Args:
      ckpt_to_initialize_from: a checkpoint's prefix, or its directory.
      vars_to_warm_start: a regex for trainable variables; None for only those with a vocabulary; a list of
        variables, or of regexes for global variables.
      var_name_to_vocab_info: name of a variable -> vocabularies, if its rows or columns must be remapped.
      var_name_to_prev_var_name: name of a variable -> its name in the checkpoint, if that differs.

    Raises:
      ValueError: when a given name is not used, or a tensor is missing or has another shape.
    """
    groups = _groups(vars_to_warm_start)
    vocabularies, previous = dict(var_name_to_vocab_info or {}), dict(var_name_to_prev_var_name or {})
    for label, names in (("var_name_to_prev_var_name", previous), ("var_name_to_vocab_info", vocabularies)):
        unused = sorted(set(names) - set(groups))
        if unused:
            raise ValueError(
                f"You provided the following variables in {label} that were not used: {unused}.  Perhaps you misspelled"
                f" them?  Here is the list of viable variable names: {sorted(groups)}"
            )
    prefix = checkpoint_file(ckpt_to_initialize_from)
    keys = keys_by_name(prefix) or {}  # of a file that a `Checkpoint` wrote
    plain: dict[str, Any] = {}
    for name, parts in groups.items():
        stored = previous.get(name, keys.get(name, name))
        if name in vocabularies:
            _start_with_vocabulary(parts, vocabularies[name], prefix, stored)
        elif vars_to_warm_start:
            plain[stored] = parts[0] if len(parts) == 1 else parts
    init_from_checkpoint(prefix, plain)
    _log.info("Warm-started %d variables.", len(plain) + len(vocabularies))


def _groups(chosen: object) -> dict[str, list[Any]]:
    """Name -> the variable, or the parts of a partitioned one."""
    graph = get_default_graph()
    if chosen is None or isinstance(chosen, str):
        variables = graph.get_collection(GraphKeys.TRAINABLE_VARIABLES, chosen)
    elif not isinstance(chosen, list):
        raise ValueError(f"`vars_to_warm_start must be a `list` or `str`.  Given type is {type(chosen)}")
    elif all(isinstance(item, str) for item in chosen):
        variables = [v for pattern in chosen for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES, pattern)]
    elif all(isinstance(item, Variable) for item in chosen):
        variables = chosen
    else:
        types = [type(item) for item in chosen]
        raise ValueError(
            f"If `vars_to_warm_start` is a list, it must be all `Variable` or all `str`.  Given types are {types}"
        )
    groups: dict[str, list[Any]] = {}
    for variable in variables:
        (name,) = named_saveables([variable])
        groups.setdefault(name, []).append(variable)
    return groups


def _start_with_vocabulary(parts: list[Any], info: VocabInfo, prefix: str, tensor_name: str) -> None:
    initializer = info.backup_initializer or zeros_initializer()
    for part in parts:
        slice_info = part._get_save_slice_info()
        offset = slice_info.var_offset[0] if slice_info else 0
        load = _rows if info.axis == 0 else _columns
        value = load(part.get_shape().as_list(), offset, info, prefix, tensor_name, initializer)
        part._initializer_op = assign(part, value).op


def _rows(
    shape: list[int], offset: int, info: VocabInfo, prefix: str, name: str, initializer: Callable[..., Any]
) -> Any:
    """The value of a partition that begins at row ``offset``; rows are words, the last ones unknown words."""
    unknown = min(shape[0], max(0, offset + shape[0] - info.new_vocab_size))
    if offset + shape[0] > info.new_vocab_size + info.num_oov_buckets:
        raise ValueError(
            f"Trying to initialize {shape[0]} additional rows after {offset} rows have already been initialized, which"
            f" would exceed expected total row count of new_row_vocab_size ({info.new_vocab_size}) +"
            f" num_row_oov_buckets ({info.num_oov_buckets}) = {info.new_vocab_size + info.num_oov_buckets}."
        )
    known = shape[0] - unknown
    if not known:
        return internal_convert(initializer(shape))
    remapping, present = generate_vocab_remapping(
        info.new_vocab, info.old_vocab, new_vocab_offset=offset, num_new_vocab=known,
        old_vocab_size=info.old_vocab_size,
    )  # fmt: skip
    filling = _some_values(initializer, known * shape[1], present * shape[1])
    loaded = load_and_remap_matrix(prefix, name, remapping, [], filling, num_rows=known, num_cols=shape[1])
    return concat([loaded, internal_convert(initializer([unknown, shape[1]]))], 0) if unknown else loaded


def _some_values(initializer: Callable[..., Any], count: int, present: Any) -> Any:
    """Initial values for the words that are not present; initializers need static shapes, hence the slice."""
    return slice_of(internal_convert(initializer([count, 1])), [0, 0], stack([count - present, 1]))


def _columns(
    shape: list[int], offset: int, info: VocabInfo, prefix: str, name: str, initializer: Callable[..., Any]
) -> Any:
    """The value of a partition whose columns are words; columns are not partitioned."""
    count, rows = info.new_vocab_size, shape[0]
    if shape[1] != count + info.num_oov_buckets:
        raise ValueError(
            f"Expected 2nd dim of shape to be new_col_vocab_size ({count}) + num_col_oov_buckets"
            f" ({info.num_oov_buckets}) = {count + info.num_oov_buckets}, but received shape: {shape}"
        )
    remapping, present = generate_vocab_remapping(
        info.new_vocab, info.old_vocab, new_vocab_offset=0, num_new_vocab=count, old_vocab_size=info.old_vocab_size
    )
    filling = _some_values(initializer, rows * count, present * rows)
    row_ids = range_of(offset, offset + rows, dtype=dtypes.int64)
    loaded = load_and_remap_matrix(prefix, name, row_ids, remapping, filling, num_rows=rows, num_cols=count)
    unknown = info.num_oov_buckets
    return concat([loaded, internal_convert(initializer([rows, unknown]))], 1) if unknown else loaded
