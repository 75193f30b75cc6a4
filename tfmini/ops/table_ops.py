"""Table ops: ``HashTableV2``, ``MutableHashTableV2`` and related, ``LookupTableFindV2``, ``InitializeTableV2``, …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from tfmini import errors
from tfmini.core_types import Array
from tfmini.dtypes import DType, cpp_name
from tfmini.graph.families import Operation, OpHandle, ShapeRule, all_of, unknown_shapes
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources, Traits
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.table_state import LINE_NUMBER, WHOLE_LINE, Buckets, TableState, read_vocabulary
from tfmini.ops.waiting_line import find_or_create, state_op
from tfmini.shapes import RawShape, at_least_rank, at_most_rank, merge_dims, merge_raw, with_rank

_TABLE = """container: string = ''
    shared_name: string = ''
    use_node_name_sharing: bool = false
    key_dtype: type
    value_dtype: type"""
_DENSE = f"{_TABLE}\nvalue_shape: shape = {{}}\ninitial_num_buckets: int = 131072\nmax_load_factor: float = 0.8"


def _pair(
    name: str, inputs: str, outputs: str, shape: ShapeRule, attrs: str = "", **traits: Unpack[Traits]
) -> tuple[OpHandle[Any], OpHandle[Any]]:
    """Declares an op on a table, with a resource handle and with the old reference."""
    result = f" -> {outputs}" if outputs else ""
    new = state_op(f"{name}V2(table_handle: resource{inputs}){result}\n{attrs}", shape, **traits)
    return new, state_op(f"{name}(table_handle: Ref(string){inputs}){result}\n{attrs}", shape, **traits)


def _table(name: str, attrs: str, on_ps: bool) -> tuple[OpHandle[Any], OpHandle[Any]]:
    new = state_op(f"{name}V2() -> table_handle: resource\n{attrs}", [()], on_ps=on_ps)
    return new, state_op(f"{name}() -> table_handle: Ref(string)\n{attrs}", [(2,)], on_ps=on_ps)


# ---- shapes ---------------------------------------------------------------------------------


def _same_rows(node: Operation) -> list[RawShape]:
    keys, values = node.inputs[1].raw_shape, node.inputs[2].raw_shape
    for shape in (keys, values):
        at_least_rank(shape, 1)
    if keys is not None and values is not None:
        merge_dims(keys[0], values[0])
    return []


def _same_vectors(node: Operation) -> list[RawShape]:
    merge_raw(with_rank(node.inputs[1].raw_shape, 1), node.inputs[2].raw_shape)
    return []


def _scalar_filename(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[1].raw_shape, 0)
    return []


def _find_shape(node: Operation) -> list[RawShape]:
    default = at_most_rank(node.inputs[2].raw_shape, 1)
    keys, maker = node.inputs[1].raw_shape, node.inputs[0].op
    if keys is None or default is None:
        return [None]
    if maker.type.startswith("MutableDense"):
        key = maker.inputs[0].raw_shape
        return [None] if key is None else [keys[: len(keys) - len(key)] + default]
    return [keys + default]


# ---- the ops ----------------------------------------------------------------------------------


hash_table, hash_table_v1 = _table("HashTable", _TABLE, on_ps=False)
mutable_hash_table, mutable_hash_table_v1 = _table("MutableHashTable", _TABLE, on_ps=True)
table_of_tensors, table_of_tensors_v1 = _table(
    "MutableHashTableOfTensors", f"{_TABLE}\nvalue_shape: shape = {{}}", on_ps=True
)
dense_table = state_op(
    f"MutableDenseHashTableV2(empty_key: key_dtype, deleted_key: key_dtype) -> table_handle: resource\n{_DENSE}",
    [()], on_ps=True,
)  # fmt: skip
dense_table_v1 = state_op(
    f"MutableDenseHashTable(empty_key: key_dtype) -> table_handle: Ref(string)\n{_DENSE}", [(2,)], on_ps=True
)
_IN_OUT = "Tin: type; Tout: type"
find, find_v1 = _pair("LookupTableFind", ", keys: Tin, default_value: Tout", "values: Tout", _find_shape, _IN_OUT)
insert, insert_v1 = _pair("LookupTableInsert", ", keys: Tin, values: Tout", "", [], _IN_OUT)
remove = state_op("LookupTableRemoveV2(table_handle: resource, keys: Tin); Tin: type", [])
size, size_v1 = _pair("LookupTableSize", "", "size: int64", [()])
export, export_v1 = _pair(
    "LookupTableExport", "", "keys: Tkeys, values: Tvalues", unknown_shapes, "Tkeys: type; Tvalues: type"
)
import_, import_v1 = _pair("LookupTableImport", ", keys: Tin, values: Tout", "", _same_rows, _IN_OUT)
initialize, initialize_v1 = _pair(
    "InitializeTable", ", keys: Tkey, values: Tval", "", _same_vectors, "Tkey: type; Tval: type"
)
initialize_from_file, initialize_from_file_v1 = _pair(
    "InitializeTableFromTextFile", ", filename: string", "", _scalar_filename,
    "key_index: int >= -2; value_index: int >= -2; vocab_size: int >= -1 = -1; delimiter: string = '\\t'",
    slow_io=True,
)  # fmt: skip


# ---- the tables -----------------------------------------------------------------------------


def _find_table(resources: DeviceResources, node: Node, create: Callable[..., Any]) -> TableState:
    attrs = node.attrs
    shared = attrs["shared_name"]
    if not shared and attrs.get("use_node_name_sharing"):
        shared = node.name.encode()
    table: TableState = find_or_create(resources, attrs["container"], shared, node, "table", create)
    wanted = attrs["key_dtype"], attrs["value_dtype"]
    if (table.key_dtype, table.value_dtype) != wanted:
        refuse(
            f"Conflicting key/value dtypes {cpp_name(wanted[0])}->{cpp_name(wanted[1])} with"
            f" {cpp_name(table.key_dtype)}-{cpp_name(table.value_dtype)} for table {table.name}"
        )
    return table


@all_of(hash_table, hash_table_v1).state_kernel("CPU")
def _static_table(resources: DeviceResources, *, node: Node, key_dtype: DType, value_dtype: DType) -> TableState:
    return _find_table(resources, node, lambda name: TableState(name, key_dtype, value_dtype, once=True))


@all_of(mutable_hash_table, mutable_hash_table_v1).state_kernel("CPU")
def _mutable_table(resources: DeviceResources, *, node: Node, key_dtype: DType, value_dtype: DType) -> TableState:
    return _find_table(resources, node, lambda name: TableState(name, key_dtype, value_dtype))


@all_of(table_of_tensors, table_of_tensors_v1).state_kernel("CPU")
def _tensor_table(
    resources: DeviceResources, *, node: Node, key_dtype: DType, value_dtype: DType, value_shape: tuple[int, ...]
) -> TableState:
    if value_shape is None or len(value_shape) != 1:
        refuse(f"Default value must be a vector, got shape {list(value_shape or ())}")
    return _find_table(resources, node, lambda name: TableState(name, key_dtype, value_dtype, value_shape=value_shape))


@dense_table.kernel("CPU")
def _dense_table(
    empty_key: Array, deleted_key: Array, *, resources: DeviceResources, node: Node, value_shape: RawShape,
    initial_num_buckets: int, max_load_factor: float,
) -> TableState:  # fmt: skip
    if np.shape(empty_key) != np.shape(deleted_key):
        text = f"Empty and deleted keys must have same shape, got shapes: {list(np.shape(empty_key))} and "
        refuse(text + str(list(np.shape(deleted_key))))
    if np.array_equal(empty_key, deleted_key):
        refuse("Empty and deleted keys cannot be equal")
    table = _dense(
        empty_key, resources=resources, node=node, value_shape=value_shape, initial_num_buckets=initial_num_buckets,
        max_load_factor=max_load_factor,
    )  # fmt: skip
    table.forbid(deleted_key, "deleted_key")
    if table.buckets is not None:
        table.buckets.deleted_key = table.keys_of(np.asarray(deleted_key)[None])[0]
    return table


@dense_table_v1.kernel("CPU")
def _dense(
    empty_key: Any, *, resources: Any, node: Any, value_shape: Any, initial_num_buckets: int, max_load_factor: float
) -> TableState:
    if initial_num_buckets < 4 or initial_num_buckets & (initial_num_buckets - 1):
        refuse(f"Number of buckets must be at least 4 and a power of 2, got: {initial_num_buckets}")
    if not 0 < max_load_factor < 1:
        refuse(f"max_load_factor must be between 0 and 1, got: {max_load_factor}")
    if np.ndim(empty_key) > 1:
        refuse(f"Empty key must be a scalar or a vector, got shape {list(np.shape(empty_key))}")
    if len(value_shape or ()) > 1:
        refuse(f"Empty value must be a scalar or a vector, got shape {list(value_shape)}")
    types = node.attrs["key_dtype"], node.attrs["value_dtype"]
    shapes = {"key_shape": np.shape(empty_key), "value_shape": tuple(value_shape or ())}
    table = _find_table(resources, node, lambda name: TableState(name, *types, **shapes))
    table.forbid(empty_key, "empty_key")
    if table.buckets is None:
        key = table.keys_of(np.asarray(empty_key)[None])[0]
        table.buckets = Buckets(initial_num_buckets, max_load_factor, key)
    return table


# ---- access ---------------------------------------------------------------------------------


def _check_types(table: TableState, key: DType, value: DType) -> None:
    for what, has, wanted in (("Key", key, table.key_dtype), ("Value", value, table.value_dtype)):
        if has is not wanted:
            refuse(f"{what} must be type {cpp_name(wanted)} but got {cpp_name(has)}")


@all_of(find, find_v1).kernel("CPU")
def _find(table: TableState, keys: Array, default_value: Array, *, Tin: DType, Tout: DType) -> Any:
    _check_types(table, Tin, Tout)
    return table.find(keys, default_value)


@all_of(insert, insert_v1).kernel("CPU")
def _insert(table: TableState, keys: Array, values: Array, *, Tin: DType, Tout: DType) -> tuple[()]:
    if table.once:
        raise errors.UnimplementedError.of("Insert not supported by InitializableLookupTable implementations")
    _check_types(table, Tin, Tout)
    table.insert(keys, values)
    return ()


@remove.kernel("CPU")
def _remove(table: TableState, keys: Array, *, Tin: DType) -> tuple[()]:
    if table.once:
        raise errors.UnimplementedError.of("Remove not supported by InitializableLookupTable implementations")
    _check_types(table, Tin, table.value_dtype)
    table.remove(keys)
    return ()


@all_of(size, size_v1).kernel("CPU")
def _size(table: TableState) -> Any:
    return np.int64(len(table))


@all_of(export, export_v1).kernel("CPU")
def _export(table: TableState, *, Tkeys: DType, Tvalues: DType) -> tuple[Any, Any]:
    _check_types(table, Tkeys, Tvalues)
    return table.export()


@all_of(import_, import_v1).kernel("CPU")
def _import(table: TableState, keys: Array, values: Array, *, Tin: DType, Tout: DType) -> tuple[()]:
    _check_types(table, Tin, Tout)
    if table.once:
        _fill(table, keys, values)
    else:
        table.insert(keys, values, replace_all=True)
    return ()


@all_of(initialize, initialize_v1).kernel("CPU")
def _initialize(table: TableState, keys: Array, values: Array, *, Tkey: DType, Tval: DType) -> tuple[()]:
    _check_initializable(table)
    if (Tkey, Tval) != (table.key_dtype, table.value_dtype):
        refuse(
            f"Conflicting key/value dtypes {cpp_name(Tkey)}->{cpp_name(Tval)} with"
            f" {cpp_name(table.key_dtype)}-{cpp_name(table.value_dtype)} for table {table.name}"
        )
    if np.ndim(keys) != 1:
        refuse(f"Keys must be a vector, but received shape {list(np.shape(keys))}")
    if np.size(keys) != np.size(values):
        refuse(f"Number of elements in keys and values do not match: {np.size(keys)} != {np.size(values)}")
    _fill(table, keys, values)
    return ()


def _fill(table: TableState, keys: Array, values: Array) -> None:
    if not np.size(keys):
        refuse("keys and values cannot be empty tensors.")
    table.check_distinct(keys, values)
    table.insert(keys, values)


def _check_initializable(table: TableState) -> None:
    if not table.once:
        refuse(f"Table {table.name} is not initializable")


@all_of(initialize_from_file, initialize_from_file_v1).kernel("CPU")
def _initialize_from_file(
    table: TableState, filename: Array, *, key_index: int, value_index: int, vocab_size: int, delimiter: bytes
) -> tuple[()]:
    _check_initializable(table)
    if len(delimiter) != 1:
        refuse("delimiter should be only 1 char")
    path = filename if isinstance(filename, bytes) else np.asarray(filename, object).item()
    _check_columns(table, key_index, value_index)
    keys, values = read_vocabulary(path, table, key_index, value_index, vocab_size, delimiter)
    if table.is_initialized:
        return ()  # Another session, which shares the table under the file's name, has initialized it.
    arrays = [np.array(v, t.numpy) for v, t in ((keys, table.key_dtype), (values, table.value_dtype))]
    _fill(table, arrays[0], arrays[1])
    return ()


def _check_columns(table: TableState, key_index: int, value_index: int) -> None:
    key, value = table.key_dtype, table.value_dtype
    text = ""
    if key_index == LINE_NUMBER and key.name != "int64":
        text = f"Key index for line number requires table key dtype of int64, got {cpp_name(key)}"
    elif key_index == WHOLE_LINE and not key.is_integer and key.name != "string":
        text = f"Key index for whole line requires string or integer table key, got {cpp_name(key)}"
    elif value_index == LINE_NUMBER and value.name != "int64":
        text = f"Value index for line number requires table value dtype of int64, got {cpp_name(value)}"
    elif value_index == WHOLE_LINE and value.name != "string":
        text = f"Value index for whole line requires table value dtype of string, got {cpp_name(value)}"
    if text:
        refuse(text)
