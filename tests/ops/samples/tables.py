"""Samples of the ops in tfmini/ops/tables."""

from typing import Any


def written(tmp: str, name: str, text: str) -> str:
    """The path of a new file with this text."""
    path = f"{tmp}/{name}"
    with open(path, "w") as file:
        file.write(text)
    return path


def checkpoint(tmp: str, op: Any, value: Any) -> tuple[str, Any]:
    """The prefix of a checkpoint with one tensor, t, and the op that writes it."""
    return f"{tmp}/ckpt", op.SaveV2(prefix=f"{tmp}/ckpt", tensor_names=["t"], shape_and_slices=[""], tensors=[value])


# Handles that are resources; without V2 in the names, the same with references.
_TABLES = r"""
t = HashTableV2(key_dtype=string, value_dtype=int64);
    InitializeTableV2(table_handle=t, keys=['a', 'b'], values=i64([3, 5]));
    LookupTableFindV2(table_handle=t, keys=[['b', 'x'], ['a', 'a']], default_value=int64(-1));
    LookupTableSizeV2(table_handle=t)
t = HashTableV2(key_dtype=int64, value_dtype=string);
    InitializeTableFromTextFileV2(table_handle=t, filename=written(tmp, 'words', 'x 1\ny 2\nz 3\n'), key_index=-1,
        value_index=0, delimiter=' ', vocab_size=3);
    LookupTableFindV2(table_handle=t, keys=i64([2, 0, 7]), default_value='none');
    LookupTableSizeV2(table_handle=t)
t = MutableHashTableV2(key_dtype=string, value_dtype=float32);
    LookupTableInsertV2(table_handle=t, keys=['a', 'b', 'a'], values=f32(3));
    LookupTableFindV2(table_handle=t, keys=['b', 'x', 'a'], default_value=7.0); LookupTableSizeV2(table_handle=t);
    LookupTableImportV2(table_handle=t, keys=['c'], values=f32(1));
    LookupTableExportV2(table_handle=t, Tkeys=string, Tvalues=float32)
t = MutableHashTableOfTensorsV2(key_dtype=int64, value_dtype=float32, value_shape=[2]);
    LookupTableInsertV2(table_handle=t, keys=i64([4]), values=f32(1, 2));
    LookupTableFindV2(table_handle=t, keys=i64([4, 9]), default_value=f32(2));
    LookupTableExportV2(table_handle=t, Tkeys=int64, Tvalues=float32)
"""
_DENSE = r"""
t = MutableDenseHashTableV2(empty_key=int64(0), deleted_key=int64(-1), value_dtype=float32, value_shape=[2],
        initial_num_buckets=4);
    LookupTableInsertV2(table_handle=t, keys=i64([4, 5]), values=f32(2, 2)); LookupTableSizeV2(table_handle=t);
    LookupTableRemoveV2(table_handle=t, keys=i64([4, 8])); LookupTableSizeV2(table_handle=t);
    LookupTableFindV2(table_handle=t, keys=i64([4, 5]), default_value=f32(2))
t = MutableHashTableV2(key_dtype=string, value_dtype=int64);
    LookupTableInsertV2(table_handle=t, keys=['a', 'b'], values=i64([1, 2]));
    LookupTableRemoveV2(table_handle=t, keys=['a']);
    LookupTableExportV2(table_handle=t, Tkeys=string, Tvalues=int64)
"""

SAMPLES = (
    _TABLES
    + _TABLES.replace("V2(", "(")
    + _DENSE
    + r"""
GenerateVocabRemapping(new_vocab_file=written(tmp, 'new', 'b\nx\na\n'), old_vocab_file=written(tmp, 'old', 'a\nb\nc\n'),
    new_vocab_offset=0, num_new_vocab=3)
GenerateVocabRemapping(new_vocab_file=written(tmp, 'new', 'b\nx\na\n'), old_vocab_file=written(tmp, 'old', 'a\nb\nc\n'),
    new_vocab_offset=1, num_new_vocab=2, old_vocab_size=1)
path, save = checkpoint(tmp, op, f32(3, 2)); save; LoadAndRemapMatrix(ckpt_path=path, old_tensor_name='t',
    row_remapping=i64([2, -1, 0]), col_remapping=i64([1, 0]), initializing_values=f32(2), num_rows=3, num_cols=2)
path, save = checkpoint(tmp, op, f32(3, 2)); save; LoadAndRemapMatrix(ckpt_path=path, old_tensor_name='t',
    row_remapping=i64([1]), col_remapping=i64([]), initializing_values=f32(0), num_rows=1, num_cols=2,
    max_rows_in_memory=1)
"""
)

OURS = r"""
# TensorFlow has no kernel for its reference.
t = MutableDenseHashTable(empty_key=int64(0), value_dtype=float32, value_shape=[2]);
    LookupTableInsert(table_handle=t, keys=i64([4, 5]), values=f32(2, 2)); LookupTableSize(table_handle=t)
"""
