"""Samples of the ops in tfmini/ops/summary."""

from typing import Any

from tests.ops.samples.notation import each


def events(op: Any, folder: str) -> tuple[Any, Any, Any]:
    """The op that looks for event files, the read of an event, and an event without its time, which is first."""
    files = op.FIFOQueueV2(component_types=["string"], shapes=[[]])
    found = op.QueueEnqueueManyV2(handle=files, components=[op.MatchingFiles(pattern=f"{folder}/*")])
    event = op.ReaderReadV2(reader_handle=op.TFRecordReaderV2(), queue_handle=files)[1]
    return found, op.Rank(input=event), op.Substr(input=event, pos=9, len=10**6)


_WRITER = (
    "w = SummaryWriter(shared_name='w'); found, skip, event = events(op, tmp); CreateSummaryFileWriter(writer=w, "
    "logdir=tmp, max_queue=5, flush_millis=1000, filename_suffix='.x')"
)
_WRITES = (
    "WriteScalarSummary(writer=w, step=int64(3), tag='t', value=1.5)",
    "WriteScalarSummary(writer=w, step=int64(0), tag='t', value=7)",
    "WriteHistogramSummary(writer=w, step=int64(3), tag='t', values=f32(2, 3))",
    "WriteAudioSummary(writer=w, step=int64(3), tag='t', tensor=f32(1, 5, 2), sample_rate=8000.0)",
    "WriteSummary(writer=w, step=int64(3), tensor=f32(2), tag='t', summary_metadata='')",
    "WriteRawProtoSummary(writer=w, step=int64(3), tensor=ScalarSummary(tags='a', values=1.5))",
    "WriteGraphSummary(writer=w, step=int64(3), tensor=tf.GraphDef().SerializeToString())",
    "ImportEvent(writer=w, event=tf.Event(wall_time=1.5, step=7).SerializeToString())",
)

SAMPLES = (
    each("ScalarSummary", "tags='a', values=1.5", "tags=['a', 'b'], values=i64([3, 4])", "tags='a', values=half(0.1)")
    + each("HistogramSummary", "tag='h', values=f32(20)", "tag='h', values=[0, -1, 5, 5]", "tag='h', values=f64([])")
    + each("TensorSummary", "tensor=f32(2)", "tensor=['a'], description='d', labels=['x'], display_name='n'")
    + each("TensorSummaryV2", "tag='t', tensor=i64(2), serialized_summary_metadata=''")
    + each("AudioSummaryV2", "tag='a', tensor=f32(4, 6), sample_rate=8000.0, max_outputs=2",
           "tag='a', tensor=f32(1, 6, 2), sample_rate=44100.0")
    + each("MergeSummary", "inputs=[ScalarSummary(tags='a', values=1.5), ScalarSummary(tags='b', values=2.5)]")
    + "".join(f"{_WRITER}; {write}; FlushSummaryWriter(writer=w); found; skip; event; CloseSummaryWriter(writer=w)\n"
              for write in _WRITES)
)  # fmt: skip

# Pictures are compressed by another library.
SHAPES = (
    each("ImageSummary", "tag='i', tensor=u8(4, 3, 2, 3), max_images=2", "tag='i', tensor=f32(1, 3, 2, 1)",
         "tag='i', tensor=f16(1, 3, 2, 4), bad_color=tf.make_tensor_proto(u8([0, 255, 0, 255]))")
    + f"{_WRITER}; WriteImageSummary(writer=w, step=int64(3), tag='t', tensor=u8(4, 3, 2, 3), bad_color=u8([1, 2, 3]))"
    "; FlushSummaryWriter(writer=w); found; skip; event; CloseSummaryWriter(writer=w)\n"
)  # fmt: skip

# Removed from TensorFlow's graphs in version 15 of their format.
OURS = each("AudioSummary", "tag='a', tensor=f32(4, 6), sample_rate=8000.0, max_outputs=2")
