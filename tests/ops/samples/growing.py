"""Samples of the ops in tfmini/ops/growing. TensorFlow has none of them."""

OURS = r"""
t = KvVarHandleOp(dtype=float32, shape=[2], distribution='uniform', seed=3, shared_name='t');
    KvVarIsInitializedOp(resource=t); InitializeKvVariableOp(resource=t, default_values=f32(1, 2), unadmitted=0.0);
    KvVarIsInitializedOp(resource=t); KvResourceGather(resource=t, indices=i64([[4, -4]]), dtype=float32);
    KvResourceSparseApply(resource=t, grad=f32(2, 2), indices=i64([4, 5]), global_step=int64(1),
        hyper=[0.5], update='Adagrad', flag=True, slots=['a'], fills=[0.1], T=float32);
    KvResourceEvict(resource=t, global_step=int64(2)); KvResourceSize(resource=t);
    KvResourceExport(resource=t, dtype=float32)
t = KvVarHandleOp(dtype=float64, shape=[1], filter_freq=2, shared_name='u');
    InitializeKvVariableOp(resource=t, default_values=f64(3, 1), unadmitted=float64(-1.0));
    KvResourceGather(resource=t, indices=i64([1, 2, 2]), dtype=float64, insert=False);
    KvResourceGather(resource=t, indices=i64([1, 2, 2]), dtype=float64);
    KvResourceDump(resource=t, since=i64([-1, -1]), base_name='', dtype=float64)
t = KvVarHandleOp(dtype=float32, shape=[2], shared_name='v'); path, save = saved_table(tmp, op); save;
    KvResourceRestore(resource=t, prefix=path, default_values=f32(1, 2), unadmitted=0.0, table_name='t');
    KvResourceGather(resource=t, indices=i64([7, 9]), dtype=float32)
"""


def saved_table(tmp, op):
    """A checkpoint of a table ``t`` with the rows of two ids: (its prefix, the op that writes it)."""
    import numpy as np

    none = np.zeros(0, np.int64)
    tensors = {
        "keys": np.array([7, 8]), "values": np.ones((2, 2), np.float32), "freqs": none, "versions": none,
        "slots": np.zeros((2, 0, 2), np.float32), "slot_names": np.zeros(0, object),
        "slot_fills": np.zeros(0, np.float32), "removed": none, "keys_filtered": none, "freqs_filtered": none,
        "step": np.int64(3),
        "base": np.array(b"", object),
        "mark": np.array([-1, -1]), "base_mark": np.array([-1, -1]),
    }  # fmt: skip
    names = [f"t-{name}" for name in tensors]
    path = tmp + "/table"
    return path, op.SaveV2(
        prefix=path, tensor_names=names, shape_and_slices=[""] * len(names), tensors=list(tensors.values())
    )
