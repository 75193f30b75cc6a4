"""Samples of the ops in tfmini/ops/flow: conditions, loops, stacks, arrays of tensors."""

from typing import Any

from tests.ops.samples.variables import held as held


def exponentiated(op: Any, start: Any, limit: Any) -> Any:
    """A loop in its primitives: a number's exponential, again and again until it is not below the limit."""
    frame = {"frame_name": "loop", "parallel_iterations": 1}
    first = op.Enter(data=start, **frame)
    bound = op.Enter(data=limit, is_constant=True, **frame)
    merged = op.Merge(inputs=[first, first])
    go = op.LoopCond(input=op.Less(x=merged[0], y=bound))
    leave, stay = op.Switch(data=merged[0], pred=go)
    again = op.NextIteration(data=op.Exp(x=stay))
    merged.output.op._update_input(1, again)
    return op.Exit(data=leave)


def counted(op: Any, ref: Any, limit: Any) -> Any:
    """The same loop over a reference, which it raises by one."""
    frame = {"frame_name": "count", "parallel_iterations": 1}
    first = op.RefEnter(data=ref, **frame)
    bound = op.Enter(data=limit, is_constant=True, **frame)
    merged = op.RefMerge(inputs=[first, first])
    go = op.LoopCond(input=op.Less(x=op.Identity(input=merged[0]), y=bound))
    leave, stay = op.RefSwitch(data=merged[0], pred=go)
    one = op.Enter(data=1.0, is_constant=True, **frame)
    again = op.RefNextIteration(data=op.AssignAdd(ref=stay, value=one))
    merged[0].op._update_input(1, again)
    return op.RefExit(data=leave)


def stacked(tf: Any, stack: Any, push: Any, pop: Any, close: Any) -> list[Any]:
    """Two pushes, two pops and the end of a stack, in one step, one after the other."""
    results = [push(handle=stack, elem=1.5)]
    with tf.control_dependencies(results):
        results.append(push(handle=stack, elem=[2.0, 3.0], swap_memory=True))
    for _ in range(2):
        with tf.control_dependencies(results[-1:]):
            results.append(pop(handle=stack, elem_type=tf.float32))
    with tf.control_dependencies(results):
        return [*results, close(handle=stack)]


_ARRAY = "a = TensorArrayV3(size=3, dtype=float32)"
_FILLED = f"{_ARRAY}; f = TensorArrayScatterV3(handle=a[0], indices=[0, 1, 2], value=f32(3, 2), flow_in=a[1])"
_LIST = "l = TensorListFromTensor(tensor=f32(3, 2), element_shape=[2])"
_STACK = "element_shape=[2], element_dtype=float32)"
SAMPLES = f"""
s = Switch(data=f32(2), pred=True); Merge(inputs=[Neg(x=s[0]), Exp(x=s[1])])
s = Switch(data=f32(2), pred=False); Merge(inputs=[Neg(x=s[0]), Exp(x=s[1])])
through('Enter Exit NextIteration LoopCond Switch Merge',
    tf.while_loop(lambda x: x[0] < 5, lambda x: x * x, [f32([1.5, 2])]))
through('Enter Exit NextIteration LoopCond Switch Merge',
    tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.sin(x)), [0, f32(2)])[1])
x = tf.constant(f32(2)); through('Switch Merge', tf.cond(tf.constant(True), lambda: tf.exp(x), lambda: -x))
[v], start, now = held(op, f32(2)); start; s = RefSwitch(data=v, pred=False); RefMerge(inputs=[s[0], s[1]])
[v], start, now = held(op, f32(2)); start; AssignAdd(ref=RefIdentity(input=v), value=f32(2)); now
[v, w], start, now = held(op, f32(2), f32(2)); start;
    AssignAdd(ref=RefSelect(index=1, inputs=[v, w]), value=f32(2)); now
stacked(tf, op.StackV2(max_size=5, elem_type=float32, stack_name='s'), op.StackPushV2, op.StackPopV2, op.StackCloseV2)
stacked(tf, op.Stack(elem_type=float32, stack_name='s'), op.StackPush, op.StackPop, op.StackClose)
[v], start, now = held(op, f32(2)); start; tf.gradients(Exp(x=RefIdentity(input=v)), v)
[v], start, now = held(op, f32(2)); start; s = RefSwitch(data=v, pred=True);
    tf.gradients(Exp(x=RefMerge(inputs=[s[0], s[1]])[0]), v)
{_FILLED}; TensorArrayReadV3(handle=a[0], index=1, flow_in=f, dtype=float32)
{_ARRAY}; TensorArrayReadV3(handle=a[0], index=2, dtype=float32,
    flow_in=TensorArrayWriteV3(handle=a[0], index=2, value=f32(2), flow_in=a[1]))
{_FILLED}; TensorArrayGatherV3(handle=a[0], indices=[2, 0], flow_in=f, dtype=float32)
{_FILLED}; TensorArrayGatherV3(handle=a[0], indices=[2, 0], flow_in=f, dtype=float32, element_shape=[2])
{_FILLED}; TensorArrayConcatV3(handle=a[0], flow_in=f, dtype=float32)
{_ARRAY}; TensorArrayConcatV3(handle=a[0], dtype=float32,
    flow_in=TensorArraySplitV3(handle=a[0], value=f32(6, 2), lengths=i64([1, 3, 2]), flow_in=a[1]))
{_FILLED}; TensorArraySizeV3(handle=a[0], flow_in=f)
a = TensorArrayV3(size=0, dtype=int32, dynamic_size=True, element_shape=[]); TensorArraySizeV3(handle=a[0],
    flow_in=TensorArrayWriteV3(handle=a[0], index=4, value=7, flow_in=a[1]))
{_ARRAY}; TensorArrayCloseV3(handle=a[0])
{_FILLED}; g = TensorArrayGradV3(handle=a[0], flow_in=f, source='g');
    TensorArrayReadV3(handle=g[0], index=1, dtype=float32,
        flow_in=TensorArrayWriteV3(handle=g[0], index=1, value=f32(2), flow_in=g[1]))
{_FILLED}; g = TensorArrayGradWithShape(handle=a[0], flow_in=f, shape_to_prepend=[4], source='g');
    TensorArrayReadV3(handle=g[0], index=1, dtype=float32,
        flow_in=TensorArrayWriteV3(handle=g[0], index=1, value=f32(4, 2), flow_in=g[1]))
{_LIST}; TensorListStack(input_handle=l, {_STACK}
{_LIST}; TensorListStack(input_handle=l, num_elements=3, {_STACK}
{_LIST}; TensorListLength(input_handle=l); TensorListElementShape(input_handle=l, shape_type=int64)
{_LIST}; TensorListGetItem(input_handle=l, index=1, {_STACK}
{_LIST}; TensorListGather(input_handle=l, indices=[2, 0], {_STACK}
{_LIST}; TensorListStack(input_handle=TensorListSetItem(input_handle=l, index=1, item=f32(2)), {_STACK}
{_LIST}; TensorListStack(input_handle=TensorListPushBack(input_handle=l, tensor=f32(2)), {_STACK}
{_LIST}; p = TensorListPopBack(input_handle=l, {_STACK}; p[1]; TensorListStack(input_handle=p[0], {_STACK}
{_LIST}; TensorListStack(input_handle=TensorListResize(input_handle=l, size=5), {_STACK}
{_LIST}; TensorListConcat(input_handle=l, element_dtype=float32, element_shape=[2])
{_LIST}; TensorListConcatV2(input_handle=l, element_dtype=float32, element_shape=[2], leading_dims=i64([]))
l = TensorListSplit(tensor=f32(6, 2), element_shape=[-1, 2], lengths=i64([1, 3, 2]));
    TensorListConcatV2(input_handle=l, element_dtype=float32, element_shape=[-1, 2], leading_dims=i64([]))
{_LIST}; c = TensorListConcatLists(input_a=l, input_b=l, element_dtype=float32);
    TensorListStack(input_handle=c, {_STACK}
l = TensorListScatter(tensor=f32(2, 2), indices=[3, 1], element_shape=[2]); TensorListStack(input_handle=l, {_STACK}
l = TensorListScatterV2(tensor=f32(2, 2), indices=[3, 1], element_shape=[2], num_elements=6);
    TensorListStack(input_handle=l, {_STACK}
{_LIST}; s = TensorListScatterIntoExistingList(input_handle=l, tensor=f32(2, 2), indices=[2, 1]);
    TensorListStack(input_handle=s, {_STACK}
l = TensorListReserve(element_shape=[2], num_elements=3, element_dtype=float32);
    TensorListStack(input_handle=l, {_STACK}
l = EmptyTensorList(element_shape=[2], max_num_elements=2, element_dtype=float32);
    TensorListStack(input_handle=TensorListPushBack(input_handle=l, tensor=f32(2)), {_STACK}
{_LIST}; b = TensorListPushBackBatch(input_handles=Pack(values=[l, l]), tensor=f32(2, 2));
    TensorListStack(input_handle=Unpack(value=b, num=2)[1], {_STACK}
{_LIST}; TensorListStack(input_handle=AddN(inputs=[l, l]), {_STACK}
{_LIST}; TensorListStack(input_handle=ZerosLike(x=l), {_STACK}
"""

NO_SLOPE = """
# A loop of primitives has no context that its gradient could be built from.
exponentiated(op, 0.75, 10.0)
exponentiated(op, 20.0, 10.0)
[v], start, now = held(op, float32([1])[0]); start; counted(op, v, 4.0); now
"""
