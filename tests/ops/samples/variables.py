"""Samples of the ops in tfmini/ops/variables: variables behind references and behind resources."""

from typing import Any


def stored(op: Any, *values: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Handles of variables, the ops that put the values there, and the tensors that read them."""
    types = [value.dtype.type for value in values]
    handles = [
        op.VarHandleOp(dtype=t, shape=v.shape, shared_name=f"v{i}") for i, (t, v) in enumerate(zip(types, values))
    ]
    start = [op.AssignVariableOp(resource=h, value=v) for h, v in zip(handles, values)]
    return handles, start, [op.ReadVariableOp(resource=h, dtype=t) for h, t in zip(handles, types)]


def held(op: Any, *values: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """References to variables, the ops that put the values there, and the references as what is read."""
    refs = [op.VariableV2(dtype=v.dtype.type, shape=v.shape) for v in values]
    return refs, [op.Assign(ref=r, value=v) for r, v in zip(refs, values)], refs


_STORED = "[v], start, now = stored(op, {}); start; "
_HELD = "[v], start, now = held(op, {}); start; "


def scattered(op: str, start: str, *updates: str) -> str:
    """Rows of a scatter op on references, and of its form on resources."""
    resource = "".join(f"{_STORED.format(start)}Resource{op}(RESOURCE=v, {update}); now\n" for update in updates)
    name = "ref" if "Nd" in op else "resource"
    return "".join(f"{_HELD.format(start)}{op}(ref=v, {update}); now\n" for update in updates) + resource.replace(
        "RESOURCE", name
    )


_ROWS = ("indices=[2, 0], updates=f32(2, 2, low=0.5)", "indices=i64([[1]]), updates=f32(1, 1, 2, low=0.5)",
         "indices=[1, 1], updates=2.0")  # fmt: skip
_KINDS = ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max")
_POINTS = ("indices=[[2], [0]], updates=f32(2, 2)", "indices=i64([[1, 1], [2, 0]]), updates=f32(2)")

SAMPLES = (
    "".join(scattered(f"Scatter{kind}", "f32(3, 2)", *_ROWS) for kind in _KINDS)
    + "".join(scattered(f"ScatterNd{kind}", "f32(3, 2)", *_POINTS) for kind in ("Update", "Add", "Sub"))
    + scattered("ScatterAdd", "i32(3)", "indices=[2, 2], updates=[5, 7]")
    + r"""
v = Variable(shape=[2], dtype=float32); IsVariableInitialized(ref=v); Assign(ref=v, value=f32(2));
    IsVariableInitialized(ref=v); AssignAdd(ref=v, value=f32(2)); AssignSub(ref=v, value=f32(2)); v
v = VariableV2(shape=[], dtype=int64); Assign(ref=v, value=int64(3)); CountUpTo(ref=v, limit=5);
    CountUpTo(ref=v, limit=5); v
v = VariableV2(shape=[2], dtype=float32); Assign(ref=v, value=f32(3, 1), validate_shape=False)
v = TemporaryVariable(shape=[2], dtype=float32, var_name='t');
    DestroyTemporaryVariable(ref=AssignAdd(ref=Assign(ref=v, value=f32(2)), value=f32(2)), var_name='t')
v = VarHandleOp(dtype=float32, shape=[2], shared_name='v'); VarIsInitializedOp(resource=v);
    AssignVariableOp(resource=v, value=f32(2)); VarIsInitializedOp(resource=v);
    ReadVariableOp(resource=v, dtype=float32); DestroyResourceOp(resource=v);
    VarIsInitializedOp(resource=v); DestroyResourceOp(resource=v)
[v], start, now = stored(op, f32(2, 3)); start; AssignAddVariableOp(resource=v, value=f32(2, 3)); now;
    AssignSubVariableOp(resource=v, value=f32(2, 3)); now; VariableShape(input=v);
    VariableShape(input=v, out_type=int64)
[v], start, now = stored(op, int32([4])[0]); start; ResourceCountUpTo(resource=v, limit=6, T=int32);
    ResourceCountUpTo(resource=v, limit=6, T=int32); now
[v], start, now = stored(op, f32(3, 2)); start; tf.gradients(ReadVariableOp(resource=v, dtype=float32), v)
[v], start, now = stored(op, f32(3, 2)); start; ResourceGather(resource=v, indices=[2, 0, 2], dtype=float32);
    g, = tf.gradients(ResourceGather(resource=v, indices=[[2, 0]], dtype=float32), v); [g.values, g.indices]
[v], start, now = stored(op, f32(2, 3, 2)); start;
    ResourceGather(resource=v, indices=i64([[2, 0], [1, 1]]), dtype=float32, batch_dims=1)
[v], start, now = stored(op, f32(3, 2)); start; ResourceGatherNd(resource=v, indices=[[2, 0], [1, 1]], dtype=float32);
    ResourceGatherNd(resource=v, indices=i64([[2]]), dtype=float32);
    g, = tf.gradients(ResourceGatherNd(resource=v, indices=[[2], [0]], dtype=float32), v); [g.values, g.indices]
[v], start, now = stored(op, f32(4, 3)); start; now;
    ResourceStridedSliceAssign(ref=v, begin=[0, 1], end=[4, 3], strides=[2, 1], value=f32(2, 2)); now
[v], start, now = stored(op, i32(4)); start;
    ResourceStridedSliceAssign(ref=v, begin=i64([-1]), end=i64([0]), strides=i64([1]), value=9, shrink_axis_mask=1); now
TensorStridedSliceUpdate(input=f32(4, 3), begin=[0, 1], end=[4, 3], strides=[2, 1], value=f32(2, 2))
TensorStridedSliceUpdate(input=f32(2, 3, 2), begin=[1, 0], end=[2, 0], strides=[1, 1], value=f32(1, 2, 3, 2),
    ellipsis_mask=2, new_axis_mask=1)
"""
)
