"""Samples of the ops in modules that lie directly in tfmini/ops."""

from typing import Any

from tests.ops.samples.notation import each


def collective(tf: Any, op: Any, values: Any, wider: Any) -> list[Any]:
    """Two devices reduce, broadcast and gather their values."""
    found = []
    for device in range(2):
        with tf.device(f"/cpu:{device}"):
            keys = {"group_size": 2, "group_key": 1}
            found += [
                op.CollectiveReduce(
                    input=values[device], instance_key=1, merge_op="Add", final_op="Div", subdiv_offsets=[0], **keys
                ),
                op.CollectiveGather(input=wider[device], instance_key=2, shape=[2, 3], **keys),
                op.CollectiveBcastRecv(T="float32", instance_key=3, shape=[2], **keys)
                if device
                else op.CollectiveBcastSend(input=values[0], instance_key=3, shape=[2], **keys),
            ]
    return found


def exchange(tf: Any, op: Any, values: Any) -> list[Any]:
    """Two devices broadcast, scatter a reduction, and exchange their values."""
    found = []
    for device in range(2):
        with tf.device(f"/cpu:{device}"):
            keys = {"group_size": 2, "group_key": 1}
            found += [
                op.CollectiveBcastAlike(input=values[device], instance_key=1, is_source=not device, **keys),
                op.CollectiveReduceScatter(input=values[device], instance_key=2, merge_op="Add", final_op="Id", **keys),
                *op.CollectiveAllToAll(input=values[device], splits=[1, 1], instance_key=3, **keys),
            ]
    return found


SAMPLES = r"""
NoOp()
ControlTrigger()
collective(tf, op, [f32(2), f32(2)], [f32(1, 3), f32(1, 3)])
"""

NO_SLOPE = (
    # The gradients are those of the inputs without rounding.
    each("FakeQuantWithMinMaxArgs", "inputs=f32(3, 4)", "inputs=f32(3, 4), min=-1.5, max=0.7, num_bits=4")
    + each("FakeQuantWithMinMaxVars", "inputs=f32(3, 4), min=-1.2, max=0.3, num_bits=3, narrow_range=True")
    + each("FakeQuantWithMinMaxVarsPerChannel", "inputs=f32(2, 2, 3), min=[-1.0, 0, 0.1], "
           "max=[1.0, 0, 1.5], num_bits=5")
    + each("FakeQuantWithMinMaxArgsGradient", "gradients=f32(3, 4), inputs=f32(3, 4), min=-1.5, max=0.7, num_bits=4")
    + each("FakeQuantWithMinMaxVarsGradient", "gradients=f32(3, 4), inputs=f32(3, 4), min=-1.2, max=0.3")
    + each("FakeQuantWithMinMaxVarsPerChannelGradient",
           "gradients=f32(2, 2, 3), inputs=f32(2, 2, 3), min=[-1.0, 0, 0.1], max=[1.0, 0, 1.5]")
    # TensorFlow has no gradients of the ops of sounds.
    + each("DecodeWav", "contents=EncodeWav(audio=f32(5, 2), sample_rate=8000)",
           "contents=EncodeWav(audio=f32(3, 1), sample_rate=44100), desired_channels=2, desired_samples=4")
    + each("EncodeWav", "audio=f32(4, 2), sample_rate=16000")
    + each("AudioSpectrogram", "input=f32(20, 1), window_size=7, stride=3",
           "input=f32(16, 1), window_size=8, stride=8, magnitude_squared=True")
    + each("Mfcc", "spectrogram=f32(1, 2, 33, low=0.0), sample_rate=16000",
           "spectrogram=f32(2, 1, 65, low=0.0), sample_rate=8000, upper_frequency_limit=3000.0,"
           " lower_frequency_limit=100.0, filterbank_channel_count=10, dct_coefficient_count=4")
    # Nor of those of k-means.
    + each("NearestNeighbors", "points=f32(5, 3), centers=f32(4, 3), k=1", "points=f32(5, 3), centers=f32(4, 3), k=3",
           "points=f32(3, 2), centers=f32(2, 2), k=5", "points=f32(3, 2), centers=f32(2, 2), k=0")
    + each("KmeansPlusPlusInitialization", "points=f32(9, 2), num_to_sample=4, seed=3, num_retries_per_sample=0",
           "points=f32(9, 2), num_to_sample=9, seed=-8, num_retries_per_sample=-1")
    + each("KMC2ChainInitialization", "distances=f32(30, low=0.0), seed=5", "distances=f32(1), seed=0")
)  # fmt: skip

SHAPES = r"""
# The time.
Timestamp()
"""

OURS = r"""
# TensorFlow has no such collectives.
exchange(tf, op, [f32(2), f32(2)])
# Their functions are known by names that each implementation makes up; the public function gives them.
through('PyFunc', tf.py_func(lambda x: x * 2, [f32(2)], tf.float32))
through('EagerPyFunc', tf.py_function(lambda x: x * 2, [f32(2)], tf.float32))
through('PyFuncStateless', tf.py_func(lambda x: x * 2, [f32(2)], tf.float32, stateful=False))
# TensorFlow keeps a value only when the step has ended.
GetSessionTensor(handle=GetSessionHandle(value=f32(2)), dtype=float32)
DeleteSessionTensor(handle=GetSessionHandle(value=f32(2)))
"""
