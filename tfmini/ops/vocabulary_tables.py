"""Tables between strings and ids: ``index_table_from_file``, ``index_to_string_table_from_tensor``, … with
hash buckets for strings outside the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from tfmini import dtypes, errors
from tfmini.checkpoint.files import local_path
from tfmini.core_types import Array, DTypeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, OpHandle, Tensor, convert_to_tensor, name_scope, op, sized
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import size as size_of
from tfmini.ops.composites import SparseTensor
from tfmini.ops.control import no_op
from tfmini.ops.io.checkpoint_ops import open_checkpoint
from tfmini.ops.math.comparison import not_equal
from tfmini.ops.math.elementwise import add
from tfmini.ops.string_ops import as_string
from tfmini.ops.tables import (
    KeyValueTensorInitializer,
    LookupInterface,
    StaticHashTable,
    TableInitializerBase,
    TextFileIdTableInitializer,
    TextFileIndex,
    TextFileStringTableInitializer,
)


@export("tf.contrib.lookup.HasherSpec")
class HasherSpec(NamedTuple):
    """The hash function of buckets: ``fasthash``, ``legacy`` or ``stronghash`` with its key."""

    hasher: str
    key: Any


FastHashSpec = HasherSpec("fasthash", None)


@export("tf.contrib.lookup.StrongHashSpec")
def StrongHashSpec(key: Sequence[int]) -> HasherSpec:
    """A keyed hash; ``key`` is two integers (``tf.contrib.lookup.StrongHashSpec``).

    Raises:
      ValueError: for another number of integers.
      TypeError: for elements that are not integers.
    """
    if len(key) != 2:
        raise ValueError(f"key must have size 2, got {len(key)}.")
    if not all(isinstance(part, int) for part in key):
        raise TypeError(f"Invalid key {key}. Must be unsigned integer values.")
    return HasherSpec("stronghash", key)


_HASH_OPS = {
    "fasthash": "StringToHashBucketFast",
    "legacy": "StringToHashBucket",
    "stronghash": "StringToHashBucketStrong",
}


def _buckets(values: Tensor, count: int, spec: HasherSpec) -> Tensor:
    if spec.hasher not in _HASH_OPS:
        raise ValueError(f"Unknown hasher {spec.hasher}")
    text = values if values.dtype.base_dtype is dtypes.string else as_string(values)
    attrs = {"key": spec.key} if spec.hasher == "stronghash" else {}
    return raw_ops.named(_HASH_OPS[spec.hasher])(text, num_buckets=count, name="hash_bucket", **attrs)


@export("tf.contrib.lookup.IdTableWithHashBuckets")
class IdTableWithHashBuckets(LookupInterface):
    """Ids for strings: those of a table, and hash buckets for all other strings.

    Args:
      table: a table of int64 ids; None: only buckets.
      num_oov_buckets: the number of buckets.
      hasher_spec: a `HasherSpec`.
      name: default: that of the table.
      key_dtype: string or an integer type.

    Raises:
      ValueError, TypeError: when types or numbers do not fit.
    """

    def __init__(
        self, table: Any, num_oov_buckets: int, hasher_spec: HasherSpec = FastHashSpec, name: str | None = None,
        key_dtype: Any = None,
    ) -> None:  # fmt: skip
        if not table and num_oov_buckets <= 0:
            raise ValueError("oov_buckets must be > 0 if no table is supplied.")
        key_dtype = dtypes.as_dtype(key_dtype or (table.key_dtype if table else dtypes.string))
        if table:
            _check_table(table.key_dtype, table.value_dtype, key_dtype)
        if not key_dtype.is_integer and key_dtype is not dtypes.string:
            raise TypeError(f"Invalid key_dtype, expected integer or string, got {key_dtype!r}.")
        if not isinstance(hasher_spec, HasherSpec):
            raise TypeError(f"hasher_spec must be of type HasherSpec, got {hasher_spec}")
        super().__init__(key_dtype, dtypes.int64)
        self._table = table or None
        self._num_oov_buckets = num_oov_buckets
        self._hasher_spec = hasher_spec
        self._table_name = (name or (table.name if table else "hash_bucket")).rstrip("/").split("/")[-1]

    @property
    def initializer(self) -> Operation:
        """The operation that fills the table."""
        if self._table is not None:
            return self._table.initializer  # type: ignore[no-any-return]
        with name_scope(None, "init"):
            return no_op()

    @property
    def init(self) -> Operation:
        """The older name of `initializer`."""
        return self.initializer

    @property
    def resource_handle(self) -> Any:
        """The table's handle, or None."""
        return None if self._table is None else self._table.resource_handle

    @property
    def name(self) -> str:
        """The name."""
        return self._table_name

    def size(self, name: str | None = None) -> Tensor:
        """The number of ids, an int64 scalar."""
        with name_scope(name, f"{self.name}_Size"):
            known = convert_to_tensor(0, dtype=dtypes.int64) if self._table is None else self._table.size()
            return add(known, self._num_oov_buckets)

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The ids of ``keys`` (a tensor or sparse tensor).

        Raises:
          TypeError: for keys of another type.
        """
        self._check_key_dtype(keys)
        values = keys.values if isinstance(keys, SparseTensor) else keys
        if self._table is not None and self._table.key_dtype is dtypes.int64:
            values = cast(values, dtypes.int64)
        ids = self._ids(values, name)
        return SparseTensor(keys.indices, ids, keys.dense_shape) if isinstance(keys, SparseTensor) else ids

    def _ids(self, values: Tensor, name: str | None) -> Tensor:
        if not self._num_oov_buckets:
            return self._table.lookup(values, name=name)  # type: ignore[no-any-return, union-attr]
        with name_scope(name, f"{self.name}_Lookup"):
            buckets = _buckets(values, self._num_oov_buckets, self._hasher_spec)
            if self._table is None:
                return buckets
            ids = self._table.lookup(values)
            others = add(buckets, self._table.size())
            return where(not_equal(ids, self._table.default_value), ids, others)


def _check_table(table_key: dtypes.DType, table_value: dtypes.DType, key: dtypes.DType) -> None:
    supported = (dtypes.int64, dtypes.string)
    if table_key not in supported:
        raise TypeError(f"Invalid key dtype, expected one of {supported}, but got {key!r}.")
    if table_key.is_integer != key.is_integer:
        kind = "integer" if key.is_integer else "non-integer"
        raise TypeError(f"Invalid key dtype, expected {kind} but got {table_key!r}.")
    if table_value is not dtypes.int64:
        raise TypeError(f"Invalid value dtype, expected {dtypes.int64!r} but got {table_value!r}.")


@export("tf.lookup.StaticVocabularyTable")
class StaticVocabularyTable(IdTableWithHashBuckets):
    """Ids from an initialiser, and hash buckets for all other strings (``tf.lookup.StaticVocabularyTable``)."""

    def __init__(
        self, initializer: TableInitializerBase | None, num_oov_buckets: int, lookup_key_dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        if num_oov_buckets <= 0:
            raise ValueError("oov_buckets must be > 0.")
        table = None
        if initializer:
            key = dtypes.as_dtype(lookup_key_dtype or initializer.key_dtype)
            _check_table(initializer.key_dtype, initializer.value_dtype, key)
            table = StaticHashTable(initializer, default_value=-1)
        super().__init__(table, num_oov_buckets, FastHashSpec, name, lookup_key_dtype)


def _check_vocabulary(file: object, num_oov_buckets: int, vocab_size: int | None) -> None:
    if file is None or (isinstance(file, str) and not file):
        raise ValueError("vocabulary_file must be specified and must not be empty.")
    if num_oov_buckets < 0:
        raise ValueError(f"num_oov_buckets must be greater or equal than 0, got {num_oov_buckets}.")
    if vocab_size is not None and vocab_size < 1:
        raise ValueError(f"vocab_size must be greater than 0, got {vocab_size}. vocabulary_file: {file}")


@export("tf.contrib.lookup.index_table_from_file")
def index_table_from_file(
    vocabulary_file: Any = None, num_oov_buckets: int = 0, vocab_size: int | None = None,
    default_value: TensorLike = -1, hasher_spec: HasherSpec = FastHashSpec, key_dtype: Any = dtypes.string,
    name: str | None = None, key_column_index: int = TextFileIndex.WHOLE_LINE,
    value_column_index: int = TextFileIndex.LINE_NUMBER, delimiter: str = "\t",
) -> Any:  # fmt: skip
    """A table from the strings in a file to their line numbers (``tf.contrib.lookup.index_table_from_file``).

    Args:
      vocabulary_file: one string per line.
      num_oov_buckets: the number of hash buckets for other strings; 0: they get ``default_value``.
      vocab_size: the number of lines to read; None: all.
      default_value, hasher_spec, key_dtype, name: see `IdTableWithHashBuckets`.
      key_column_index, value_column_index, delimiter: see `TextFileInitializer`.

    Raises:
      ValueError, TypeError: when an argument is out of range.
    """
    _check_vocabulary(vocabulary_file, num_oov_buckets, vocab_size)
    key_dtype = dtypes.as_dtype(key_dtype)
    if not key_dtype.is_integer and key_dtype is not dtypes.string:
        raise TypeError("Only integer and string keys are supported.")
    with name_scope(name, "string_to_index"):
        with name_scope(None, "hash_table"):
            initializer = TextFileIdTableInitializer(
                vocabulary_file, vocab_size=vocab_size, key_dtype=dtypes.int64 if key_dtype.is_integer else key_dtype,
                name="table_init", key_column_index=key_column_index, value_column_index=value_column_index,
                delimiter=delimiter,
            )  # fmt: skip
            table = StaticHashTable(initializer, default_value)
        if num_oov_buckets:
            return IdTableWithHashBuckets(table, num_oov_buckets, hasher_spec, key_dtype=key_dtype)
        return table


@export("tf.contrib.lookup.index_table_from_tensor")
def index_table_from_tensor(
    mapping: TensorLike | None = None, num_oov_buckets: int = 0, default_value: TensorLike = -1,
    hasher_spec: HasherSpec = FastHashSpec, dtype: DTypeLike = dtypes.string, name: str | None = None,
    vocabulary_list: TensorLike | None = None,
) -> Any:  # fmt: skip
    """A table from the elements of a tensor to their positions (``tf.contrib.lookup.index_table_from_tensor``).

    Raises:
      ValueError, TypeError: when an argument is missing or has the wrong type.
    """
    mapping = vocabulary_list if mapping is None else mapping
    dtype = dtypes.as_dtype(dtype)
    if mapping is None:
        raise ValueError("mapping must be specified.")
    if num_oov_buckets < 0:
        raise ValueError(f"num_oov_buckets must be greater or equal than 0, got {num_oov_buckets}.")
    if not dtype.is_integer and dtype is not dtypes.string:
        raise TypeError("Only integer and string keys are supported.")
    with name_scope(name, "string_to_index"):
        keys = convert_to_tensor(mapping)
        if keys.dtype.is_integer != dtype.is_integer:
            raise ValueError(f"Expected {'integer' if dtype.is_integer else 'non-integer'}, got {keys.dtype!r}.")
        if not dtype.is_integer and keys.dtype.base_dtype is not dtype:
            raise ValueError(f"Expected {dtype!r}, got {keys.dtype!r}.")
        values = cast(range_of(size_of(keys)), dtypes.int64)
        with name_scope(None, "hash_table"):
            table_keys = cast(keys, dtypes.int64) if keys.dtype.is_integer else keys
            initializer = KeyValueTensorInitializer(
                table_keys, values, table_keys.dtype.base_dtype, dtypes.int64, name="table_init"
            )
            table = StaticHashTable(initializer, default_value)
        if num_oov_buckets:
            return IdTableWithHashBuckets(table, num_oov_buckets, hasher_spec, key_dtype=dtype)
        return table


@export("tf.contrib.lookup.index_to_string_table_from_file")
def index_to_string_table_from_file(
    vocabulary_file: TensorLike, vocab_size: int | None = None, default_value: TensorLike = "UNK",
    name: str | None = None, key_column_index: int = TextFileIndex.LINE_NUMBER,
    value_column_index: int = TextFileIndex.WHOLE_LINE, delimiter: str = "\t",
) -> StaticHashTable:  # fmt: skip
    """A table from line numbers to the strings in a file (``tf.contrib.lookup.index_to_string_table_from_file``)."""
    _check_vocabulary(vocabulary_file, 0, vocab_size)
    with name_scope(name, "index_to_string"):
        initializer = TextFileStringTableInitializer(
            vocabulary_file, vocab_size=vocab_size, name="table_init", key_column_index=key_column_index,
            value_column_index=value_column_index, delimiter=delimiter,
        )  # fmt: skip
        return StaticHashTable(initializer, default_value)


@export("tf.contrib.lookup.index_to_string_table_from_tensor")
def index_to_string_table_from_tensor(
    mapping: TensorLike | None = None, default_value: TensorLike = "UNK", name: str | None = None,
    vocabulary_list: TensorLike | None = None,
) -> StaticHashTable:  # fmt: skip
    """A table from positions to strings (``tf.contrib.lookup.index_to_string_table_from_tensor``).

    Raises:
      ValueError: without strings.
    """
    mapping = vocabulary_list if mapping is None else mapping
    if mapping is None:
        raise ValueError("mapping must be specified.")
    with name_scope(name, "index_to_string"):
        strings = convert_to_tensor(mapping, dtypes.string)
        keys = cast(range_of(size_of(strings)), dtypes.int64)
        initializer = KeyValueTensorInitializer(keys, strings, dtypes.int64, dtypes.string, name="table_init")
        return StaticHashTable(initializer, default_value)


@export("tf.contrib.lookup.index_to_string")
def index_to_string(
    tensor: TensorLike, mapping: TensorLike, default_value: TensorLike = "UNK", name: str | None = None
) -> Any:
    """The strings at positions (``tf.contrib.lookup.index_to_string``)."""
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)


@export("tf.contrib.lookup.string_to_index")
def string_to_index(
    tensor: TensorLike, mapping: TensorLike, default_value: TensorLike = -1, name: str | None = None
) -> Any:
    """The positions of strings (``tf.contrib.lookup.string_to_index``)."""
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


export_names("tf.contrib.lookup", "FastHashSpec")


# ---- vocabulary remapping ----------------------------------------
# Loads a matrix whose rows or columns belong to words, for a vocabulary that has changed since it was saved.

generate_vocab_remapping: OpHandle[Any] = op(
    """GenerateVocabRemapping(new_vocab_file: string, old_vocab_file: string) -> remapping: int64, num_present: int32
    new_vocab_offset: int >= 0
    num_new_vocab: int >= 0
    old_vocab_size: int >= -1 = -1""",
    slow_io=True,
    differentiable=False,
    shape=sized("(), () -> {num_new_vocab}, ()"),
)
load_and_remap_matrix = op(
    """LoadAndRemapMatrix(ckpt_path: string, old_tensor_name: string, row_remapping: int64, col_remapping: int64,
    initializing_values: float) -> output_matrix: float
    num_rows: int >= 0
    num_cols: int >= 1
    max_rows_in_memory: int = -1""",
    stateful=True,
    slow_io=True,
    differentiable=False,
    shape=sized("*, (), _, _ -> {num_rows} {num_cols}"),
)


def _text(value: Any) -> str:
    return (value if isinstance(value, bytes) else value.item()).decode()


def _lines(path: str, start: int, end: int | None) -> list[bytes]:
    try:
        with open(local_path(path), "rb") as file:
            return [line.rstrip(b"\n") for line in islice(file, start, end)]
    except OSError as error:
        raise errors.from_os_error(error, path) from None


@generate_vocab_remapping.kernel("CPU")
def _remapping(
    new_vocab_file: Array, old_vocab_file: Array, *, new_vocab_offset: int, num_new_vocab: int, old_vocab_size: int
) -> Any:
    old = _lines(_text(old_vocab_file), 0, None if old_vocab_size < 0 else old_vocab_size)
    path = _text(new_vocab_file)
    new = _lines(path, new_vocab_offset, new_vocab_offset + num_new_vocab)
    if len(new) < num_new_vocab:
        refuse(f"{path} has only {new_vocab_offset + len(new)} lines, {new_vocab_offset + num_new_vocab} are asked for")
    places = {word: i for i, word in enumerate(old)}
    remapping = np.array([places.get(word, -1) for word in new], np.int64)
    return remapping, np.int32((remapping >= 0).sum())


def _check_remapping(remapping: Array, length: int, what: str) -> None:
    if remapping.size != length:
        refuse(f"Size of {what} remapping is {remapping.size} instead of being equal to num_{what}s={length}")
    present = remapping[remapping >= 0]
    ids, counts = np.unique(present, return_counts=True)
    if (counts > 1).any():
        text = f"Old {what} {ids[counts > 1][0]} is mapped to several new {what}s, which is not supported"
        raise errors.UnimplementedError.of(text)


@load_and_remap_matrix.kernel("CPU")
def _load_and_remap(
    ckpt_path: Array,
    old_tensor_name: Array,
    row_remapping: Array,
    col_remapping: Array,
    initializing_values: Array,
    *,
    num_rows: int,
    num_cols: int,
) -> Any:
    _check_remapping(row_remapping, num_rows, "row")
    if col_remapping.size:
        _check_remapping(col_remapping, num_cols, "col")
    name = _text(old_tensor_name)
    old = open_checkpoint(_text(ckpt_path)).read(name)
    if old.ndim != 2 or (not col_remapping.size and old.shape[1] != num_cols):
        refuse(f"Tensor {name} of shape {list(old.shape)} is no matrix with the {num_cols} columns asked for")
    columns = col_remapping if col_remapping.size else np.arange(num_cols)
    if max(row_remapping.max(initial=-1), -1) >= old.shape[0] or columns.max(initial=-1) >= old.shape[1]:
        refuse(f"The remapping goes beyond tensor {name} of shape {list(old.shape)}")
    missing = (row_remapping < 0)[:, None] | (columns < 0)[None, :]
    values = initializing_values.ravel()
    if missing.sum() != values.size:
        refuse(f"{missing.sum()} elements are missing, but there are {values.size} initializing_values")
    out = old[np.ix_(row_remapping, columns)].astype(np.float32, copy=False)
    out[missing] = values
    return out
