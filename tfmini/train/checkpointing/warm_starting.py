"""``tf.train.warm_start``: initializes variables from another model's checkpoint, with remapped vocabularies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import internal_convert
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.slicing import slice as slice_of
from tfmini.ops.tables.vocabulary_remapping import generate_vocab_remapping, load_and_remap_matrix
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.initializers import zeros_initializer
from tfmini.train.checkpointing.init_from_checkpoint import init_from_checkpoint
from tfmini.train.checkpointing.saveables import named_saveables
from tfmini.train.checkpointing.state_file import checkpoint_file

_log = logging.getLogger("tensorflow")


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
    ckpt_to_initialize_from: Any,
    vars_to_warm_start: Any = ".*",
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
    plain: dict[str, Any] = {}
    for name, parts in groups.items():
        if name in vocabularies:
            _start_with_vocabulary(parts, vocabularies[name], prefix, previous.get(name, name))
        elif vars_to_warm_start:
            plain[previous.get(name, name)] = parts[0] if len(parts) == 1 else parts
    init_from_checkpoint(prefix, plain)
    _log.info("Warm-started %d variables.", len(plain) + len(vocabularies))


def _groups(chosen: Any) -> dict[str, list[Any]]:
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


def _rows(shape: list[int], offset: int, info: VocabInfo, prefix: str, name: str, initializer: Any) -> Any:
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


def _some_values(initializer: Any, count: int, present: Any) -> Any:
    """Initial values for the words that are not present; initializers need static shapes, hence the slice."""
    return slice_of(internal_convert(initializer([count, 1])), [0, 0], stack([count - present, 1]))


def _columns(shape: list[int], offset: int, info: VocabInfo, prefix: str, name: str, initializer: Any) -> Any:
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
