"""Samples of the ops in tfmini/ops/queues: queues, barriers, accumulators, staging areas, mutexes."""

_STAGED = "dtypes=[float32, int32], shared_name='s', capacity=4"

# Handles that are resources; without V2 in the names, the same with references.
_QUEUES = r"""
q = FIFOQueueV2(component_types=[float32, string], shapes=[[2], []], capacity=5);
    QueueEnqueueV2(handle=q, components=[f32(2), 'a']);
    QueueEnqueueManyV2(handle=q, components=[f32(3, 2), ['b', 'c', 'd']]);
    QueueSizeV2(handle=q); QueueDequeueV2(handle=q, component_types=[float32, string]);
    QueueDequeueManyV2(handle=q, n=2, component_types=[float32, string]); QueueIsClosedV2(handle=q);
    QueueCloseV2(handle=q); QueueIsClosedV2(handle=q);
    QueueDequeueUpToV2(handle=q, n=3, component_types=[float32, string])
q = FIFOQueueV2(component_types=[int32]); QueueEnqueueV2(handle=q, components=[[1, 2]]);
    QueueEnqueueV2(handle=q, components=[5]); QueueDequeueV2(handle=q, component_types=[int32]);
    QueueDequeueV2(handle=q, component_types=[int32]); QueueCloseV2(handle=q, cancel_pending_enqueues=True)
q = PaddingFIFOQueueV2(component_types=[int32], shapes=[[None]]); QueueEnqueueV2(handle=q, components=[[1, 2]]);
    QueueEnqueueV2(handle=q, components=[[3]]); QueueDequeueManyV2(handle=q, n=2, component_types=[int32])
q = RandomShuffleQueueV2(component_types=[int32], shapes=[[]], min_after_dequeue=1, seed=1, seed2=2);
    QueueEnqueueManyV2(handle=q, components=[list(range(8))]);
    QueueDequeueManyV2(handle=q, n=7, component_types=[int32])
q = PriorityQueueV2(component_types=[string], shapes=[[]]);
    QueueEnqueueManyV2(handle=q, components=[i64([5, 1, 3]), ['a', 'b', 'c']]);
    QueueEnqueueV2(handle=q, components=[int64(2), 'd']);
    QueueDequeueManyV2(handle=q, n=4, component_types=[int64, string])
"""
_MAPS = r"""
MapStage(key=int64(7), indices=[0, 1], values=[f32(2), 5], DTYPES);
    MapStage(key=int64(3), indices=[1], values=[6], DTYPES); MapSize(DTYPES); MapIncompleteSize(DTYPES);
    MapPeek(key=int64(7), indices=[0, 1], DTYPES);
    MapStage(key=int64(3), indices=[0], values=[f32(2)], DTYPES); MapSize(DTYPES);
    MapUnstage(key=int64(3), indices=[0], shared_name='m', dtypes=[float32]);
    MapUnstage(key=int64(3), indices=[1], shared_name='m', dtypes=[int32]);
    MapUnstageNoKey(indices=[0, 1], DTYPES); MapSize(DTYPES);
    MapStage(key=int64(9), indices=[0, 1], values=[f32(2), 1], DTYPES); MapClear(DTYPES); MapSize(DTYPES)
""".replace("DTYPES", "shared_name='m', dtypes=[float32, int32]")
_DENSE = r"""
a = ResourceConditionalAccumulator(dtype=float32, shape=[2]);
    ResourceAccumulatorApplyGradient(handle=a, local_step=int64(0), gradient=f32(2));
    ResourceAccumulatorApplyGradient(handle=a, local_step=int64(0), gradient=f32(2));
    ResourceAccumulatorNumAccumulated(handle=a);
    ResourceAccumulatorTakeGradient(handle=a, num_required=2, dtype=float32);
    ResourceAccumulatorApplyGradient(handle=a, local_step=int64(0), gradient=f32(2));
    ResourceAccumulatorNumAccumulated(handle=a); ResourceAccumulatorSetGlobalStep(handle=a, new_global_step=int64(5));
    ResourceAccumulatorApplyGradient(handle=a, local_step=int64(5), gradient=f32(2));
    ResourceAccumulatorNumAccumulated(handle=a)
a = ResourceConditionalAccumulator(dtype=float64, shape=None, reduction_type='SUM');
    ResourceAccumulatorApplyGradient(handle=a, local_step=int64(0), gradient=f64(2));
    ResourceAccumulatorApplyGradient(handle=a, local_step=int64(0), gradient=f64(2));
    ResourceAccumulatorTakeGradient(handle=a, num_required=1, dtype=float64)
"""

SAMPLES = (
    _QUEUES
    + _QUEUES.replace("V2(", "(")
    + _MAPS
    + _MAPS.replace("Map", "OrderedMap")
    + _DENSE.replace("Resource", "")
    + f"""
q = FakeQueue(resource=FIFOQueueV2(component_types=[int32])); QueueEnqueue(handle=q, components=[7]);
    QueueDequeue(handle=q, component_types=[int32])
Stage(values=[f32(2), 7], shared_name='s', capacity=4); Stage(values=[f32(1), 8], shared_name='s', capacity=4);
    StageSize({_STAGED}); StagePeek(index=1, {_STAGED}); Unstage({_STAGED}); StageSize({_STAGED});
    StageClear({_STAGED}); StageSize({_STAGED})
a = SparseConditionalAccumulator(dtype=float32, shape=[4, 2]);
    SparseAccumulatorApplyGradient(handle=a, local_step=int64(0), gradient_indices=i64([0, 2]),
        gradient_values=f32(2, 2), gradient_shape=i64([4, 2]), has_known_shape=True);
    SparseAccumulatorApplyGradient(handle=a, local_step=int64(0), gradient_indices=i64([2, 3]),
        gradient_values=f32(2, 2), gradient_shape=i64([4, 2]), has_known_shape=True);
    AccumulatorNumAccumulated(handle=a); SparseAccumulatorTakeGradient(handle=a, num_required=2, dtype=float32)
b = Barrier(component_types=[float32, string], shapes=[[], []]); i = int64(-2**63);
    BarrierInsertMany(handle=b, keys=['x', 'y', 'z'], values=[1.5, 2, 3], component_index=0);
    BarrierInsertMany(handle=b, keys=['y', 'x'], values=['b', 'a'], component_index=1);
    BarrierReadySize(handle=b); BarrierIncompleteSize(handle=b);
    BarrierTakeMany(handle=b, num_elements=1, component_types=[float32, string]);
    BarrierClose(handle=b); BarrierTakeMany(handle=b, num_elements=3, component_types=[float32, string],
        allow_small_batch=True)
ConsumeMutexLock(mutex_lock=MutexLock(mutex=MutexV2()))
"""
)

OURS = f"""
# TensorFlow has no kernel for handles that are resources on CPUs.
{_DENSE.strip()}
# What a session needs for the recovery of queues and accumulators.
q = FIFOQueueV2(component_types=[int32]); QueueCloseV2(handle=q); _QueueReopen(handle=q); QueueIsClosedV2(handle=q)
q = FIFOQueueV2(component_types=[int32]); _QueueBeginRun(handle=q, chief='a'); QueueIsClosedV2(handle=q)
q = FIFOQueueV2(component_types=[int32]); _QueueEndRun(handle=q, reason='over'); QueueIsClosedV2(handle=q)
q = FIFOQueueV2(component_types=[int32]); _QueueFailRun(handle=q, worker='a', reason='why'); QueueIsClosedV2(handle=q)
_AccumulatorLedger(handle=ResourceConditionalAccumulator(dtype=float32, shape=[2]))
_AccumulatorLedgerV1(handle=ConditionalAccumulator(dtype=float32, shape=[2]))
q = FIFOQueueV2(component_types=[int32]); QueueEnqueueV2(handle=q, components=[int32(1)]); _QueueRenew(handle=q);
    QueueSizeV2(handle=q)
a = ResourceConditionalAccumulator(dtype=float32, shape=[2]);
    ResourceAccumulatorApplyGradient(handle=a, local_step=0, gradient=f32([1, 2])); _AccumulatorRenew(handle=a, step=3);
    ResourceAccumulatorNumAccumulated(handle=a); _AccumulatorStep(handle=a)
a = ConditionalAccumulator(dtype=float32, shape=[2]);
    AccumulatorApplyGradient(handle=a, local_step=0, gradient=f32([1, 2])); _AccumulatorRenewV1(handle=a, step=3);
    AccumulatorNumAccumulated(handle=a); _AccumulatorStepV1(handle=a)
# The clocks of the workers of a ParameterStore.
c = _Clocks(workers=2); _ClockEnter(handle=c, worker=1); _ClockTick(handle=c, worker=1);
    _ClockLeave(handle=c, worker=0); _ClockWait(handle=c, worker=1, staleness=int64(0));
    _ClockEnter(handle=c, worker=0);
    _ClockReach(handle=c, worker=1, ended=int64(2)); _ClockTick(handle=c, worker=1)
# Rounds of synchronous updates.
r = _Rounds(workers=1, backup=0); t = _RoundsEnter(handle=r, worker=0); _RoundsLate(handle=r);
    k = Slice(input=t, begin=[2], size=[1]); g = Slice(input=t, begin=[0], size=[2]);
    _RoundsTakeBack(handle=r, push=ConcatV2(values=[g, i64([0]), k, i64([0, 0])], axis=0));
    p = ConcatV2(values=[g, i64([0]), k, i64([1, 1])], axis=0); a = _RoundsArrive(handle=r, push=p, what='w');
    a[1]; _RoundsSettle(handle=r, round=i64([5, 0])); _RoundsLeave(handle=r, ticket=i64([5, 0, 1]))
h = _RoundGradients(); _RoundPut(handle=h, push=i64([5, 0, 0, 1, 1, 0]), gradients=[f32(2), i64([0]), f32(1, 2)]);
    l = _RoundLead(handle=h, round=i64([5, 0]), members=i64([[1, 1]]));
    _RoundBegin(handle=h, hold=l[1], types=[float32, int64, float32], forms='dir');
    _RoundPut(handle=h, push=i64([5, 1, 0, 1, 1, 0]), gradients=[f32(2)]);
    l = _RoundLead(handle=h, round=i64([5, 1]), members=i64([[1, 1]])); _RoundEnd(handle=h, hold=l[1]);
    _RoundPut(handle=h, push=i64([5, 2, 0, 1, 1, 0]), gradients=[i64([2])]);
    l = _RoundLead(handle=h, round=i64([5, 2]), members=i64([[1, 1]]));
    _RoundBegin(handle=h, hold=l[1], types=[int64], forms='d', mean=False)
# A queue of works.
q = _WorkQueue(works=['a', 'b'], num_epochs=2, shuffle=True, seed=1, lease_ms=1000); t = _WorkTaker();
    _WorkQueueIsBegun(handle=q); w = _WorkTake(handle=q, taker=t); w[0];
    _WorkTake(handle=q, taker=t, acknowledges=False); _WorkQueueSize(handle=q);
    _WorkAcknowledge(handle=q, ticket=i64([0, 1, 7])); _WorkRenew(handle=q, ticket=w[1]);
    _WorkAdd(handle=q, works=['c']); s = _WorkQueueSave(handle=q); s[0]; _WorkQueueBegin(handle=q);
    _WorkQueueRestore(handle=q, left=s[0], added=s[1]); _WorkQueueSize(handle=q)
"""
