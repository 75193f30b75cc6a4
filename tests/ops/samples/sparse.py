"""Samples of the ops in tfmini/ops/sparse."""

from tests.ops.samples.notation import each

_PLACES = "[0, 2], [1, 0], [1, 2]"


def sparse(prefix: str = "", values: str = "f32(3)", places: str = _PLACES, shape: str = "[2, 3]") -> str:
    """The arguments for a sparse matrix, called ``<prefix>indices``, ``<prefix>values`` and ``<prefix>shape``."""
    return f"{prefix}indices=i64([{places}]), {prefix}values={values}, {prefix}shape=i64({shape})"


_OTHER = "[0, 0], [1, 0], [1, 1]"
_DENSE = sparse().replace(" shape=", " dense_shape=")
_SORTED = "indices=i64([[0, 0], [0, 2], [2, 1]]), values=f32(3), dense_shape=i64([4, 3])"
_SETS = "i64([[0, 0], [0, 1], [1, 0]])"
_SET_1 = f"set1_indices={_SETS}, set1_values=i64([3, 5, 1]), set1_shape=i64([2, 2])"
_SET_2 = f"set2_indices={_SETS}, set2_values=i64([4, 5, 1]), set2_shape=i64([2, 3])"
_OPERATIONS = ("intersection", "union", "a-b", "b-a")

SAMPLES = (
    each("SparseReorder", sparse("input_", places="[1, 2], [0, 2], [1, 0]"),
         sparse("input_", "['a', 'b', 'c']", "[1, 2], [0, 2], [1, 0]"))
    + each("SparseReshape", "input_indices=i64([[0, 2], [1, 0]]), input_shape=i64([2, 3]), new_shape=i64([3, -1])")
    + each("SparseSlice", f"{sparse()}, start=i64([1, 0]), size=i64([2, 2])",
           f"{sparse(values='[1, 2, 3]')}, start=i64([0, 1]), size=i64([1, 1])")
    + each("SparseSliceGrad", "backprop_val_grad=f32(2), input_indices=i64([[0, 2], [1, 0], [1, 2]]), "
           "input_start=i64([1, 0]), output_indices=i64([[0, 0], [0, 2]])")
    + each("SparseSplit", *(f"split_dim=int64({dim}), {sparse()}, num_split=2" for dim in (0, 1)))
    + each("SparseConcat", *(
        "indices=[i64([[0, 2], [1, 0]]), i64([[0, 0]])], values=[f32(2), f32(1)], "
        f"shapes=[i64([2, 3]), i64({shape})], concat_dim={dim}" for dim, shape in ((1, [2, 1]), (-2, [1, 3]))))
    + each("SparseToDense", "sparse_indices=[[0, 2], [1, 0]], output_shape=[2, 3], sparse_values=f32(2), "
           "default_value=7.0",
           "sparse_indices=i64([1, 3]), output_shape=i64([4]), sparse_values='a', default_value='b'",
           "sparse_indices=[[1, 0], [0, 2]], output_shape=[2, 3], sparse_values=[5, 6], default_value=0, "
           "validate_indices=False")
    + each("SparseFillEmptyRows", f"{_SORTED}, default_value=9.0", f"{_SORTED.replace('f32(3)', '[1, 2, 3]')}, "
           "default_value=7")
    + each("SparseFillEmptyRowsGrad", "reverse_index_map=i64([0, 1, 3]), grad_values=f32(5)")
    + each("SparseAdd", f"{sparse('a_')}, {sparse('b_', places=_OTHER)}, thresh=0.0",
           f"{sparse('a_', 'i64([1, 2, 3])')}, {sparse('b_', 'i64([1, -2, 5])', _OTHER)}, thresh=int64(1)",
           f"{sparse('a_', 'c64(3)')}, {sparse('b_', 'c64(3)', _OTHER)}, thresh=0.5")
    + each("SparseAddGrad", "backprop_val_grad=f32(4), a_indices=i64([[0, 2], [1, 0]]), "
           "b_indices=i64([[0, 0], [1, 0], [1, 1]]), sum_indices=i64([[0, 0], [0, 2], [1, 0], [1, 1]])")
    + each("SparseTensorDenseAdd", f"{sparse('a_')}, b=f32(2, 3)", f"{sparse('a_', 'i32(3)')}, b=i32(2, 3)")
    + each("SparseTensorDenseMatMul", f"{sparse('a_')}, b=f32(3, 2)", f"{sparse('a_')}, b=f32(4, 2), adjoint_a=True, "
           "adjoint_b=True", f"{sparse('a_', 'c64(3)')}, b=c64(2, 2), adjoint_a=True",
           f"{sparse('a_', 'i32(3)')}, b=i32(3, 1)")
    + each("SparseSoftmax", sparse("sp_"), sparse("sp_", "f64(3)"))
    + each("SparseSparseMaximum SparseSparseMinimum", f"{sparse('a_')}, {sparse('b_', places=_OTHER)}",
           f"{sparse('a_', 'i32(3)')}, {sparse('b_', 'i32(3)', _OTHER)}")
    + each("SparseDenseCwiseAdd SparseDenseCwiseMul", f"{sparse('sp_')}, dense=f32(2, 3)",
           f"{sparse('sp_')}, dense=f32(3)",
           f"{sparse('sp_', 'i32(3)')}, dense=i32(2, 1)")
    + each("SparseDenseCwiseDiv", f"{sparse('sp_')}, dense=f32(2, 3)", f"{sparse('sp_')}, dense=f32([2])")
    + each("SparseReduceSum SparseReduceMax", *(
        f"{sparse('input_')}, reduction_axes={axes}" for axes in ("[1]", "0, keep_dims=True", "[0, -1]")),
        f"{sparse('input_', 'i64(3)')}, reduction_axes=[1]")
    + each("SparseReduceSumSparse SparseReduceMaxSparse", f"{sparse('input_')}, reduction_axes=[1]",
           f"{sparse('input_')}, reduction_axes=[0], keep_dims=True")
    + "".join(f"DenseToDenseSetOperation(set1=[[1, 2, 2], [3, 4, 5]], set2=[[2, 6], [5, 5]], set_operation='{name}')\n"
              f"DenseToSparseSetOperation(set1=i64([[5, 2], [3, 4]]), {_SET_2}, set_operation='{name}')\n"
              f"SparseToSparseSetOperation({_SET_1}, {_SET_2}, set_operation='{name}')\n" for name in _OPERATIONS)
    + r"""
DenseToDenseSetOperation(set1=[['b', 'a'], ['c', 'c']], set2=[['a'], ['c']], set_operation='intersection')
SetSize(set_indices=i64([[0, 0], [0, 1], [2, 0]]), set_values=['a', 'a', 'b'], set_shape=i64([3, 2]))
EditDistance(hypothesis_indices=i64([[0, 0], [0, 1], [1, 0]]), hypothesis_values=[1, 2, 3],
    hypothesis_shape=i64([2, 2]), truth_indices=i64([[0, 0], [0, 1], [0, 2]]), truth_values=[2, 2, 5],
    truth_shape=i64([2, 3]))
EditDistance(hypothesis_indices=i64([[0, 0], [0, 1]]), hypothesis_values=['a', 'b'], hypothesis_shape=i64([1, 2]),
    truth_indices=i64([[0, 0]]), truth_values=['b'], truth_shape=i64([1, 1]), normalize=False)
"""
    + each("SparseCross", *(
        f"indices=[i64([[0, 0], [1, 0], [1, 1]]), i64([[0, 1], [1, 0]])], values=[{texts}, {numbers}], "
        f"shapes=[i64([2, 2]), i64([2, 2])], dense_inputs=[{dense}], hash_key=956888297470, {hashed}"
        for texts, numbers, dense, hashed in (
            ("['a', 'b', '']", "['x', 'y']", "[['p', 'q'], ['r', 's']]",
             "hashed_output=False, num_buckets=0, out_type=string, internal_type=string"),
            ("['a', 'b', '']", "i64([7, 8])", "i64([[5], [-1]])",
             "hashed_output=True, num_buckets=100, out_type=int64, internal_type=int64"),
            ("i64([1, 2, 3])", "i64([7, 8])", "i64([[5], [-1]])",
             "hashed_output=True, num_buckets=0, out_type=int64, internal_type=int64"))))
    + each("SerializeSparse SerializeManySparse", sparse("sparse_"), sparse("sparse_", "['a', 'b', 'c']"))
    + f"""
DeserializeSparse(serialized_sparse=SerializeSparse({sparse("sparse_")}), dtype=float32)
DeserializeSparse(serialized_sparse=SerializeSparse({sparse("sparse_")}, out_type=variant), dtype=float32)
DeserializeSparse(serialized_sparse=Pack(values=[SerializeSparse({sparse("sparse_", "i32(3)")}),
    SerializeSparse({sparse("sparse_", "i32(1)", "[1, 1]", "[2, 2]")})]), dtype=int32)
DeserializeManySparse(serialized_sparse=SerializeManySparse({sparse("sparse_")}), dtype=float32)
AddSparseToTensorsMap({sparse("sparse_")}, shared_name='m', container='c')
a = AddSparseToTensorsMap({sparse("sparse_")}, shared_name='m', container='c');
    b = AddSparseToTensorsMap({sparse("sparse_", "f32(1)", "[1, 1]", "[2, 2]")}, shared_name='m', container='c');
    TakeManySparseFromTensorsMap(sparse_handles=Pack(values=[a, b]), dtype=float32, shared_name='m', container='c')
TakeManySparseFromTensorsMap(sparse_handles=AddManySparseToTensorsMap({sparse("sparse_")}, shared_name='m'),
    dtype=float32, shared_name='m')
"""
)  # fmt: skip

# Of tf.contrib.
OURS = (
    "SparseFeatureCross(indices=[i64([[0, 0], [1, 0], [1, 1]])], values=[['a', 'b', '']], shapes=[i64([2, 2])], "
    "dense=[i64([[5], [-1]])], hashed_output=True, num_buckets=100, out_type=int64, internal_type=int64)"
)
