"""Event files: what is in them, when it is on the disk, and that TensorBoard reads them."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.oracle import Oracle
from tests.train.summaries import oracle_event_files
from tfmini import protos
from tfmini.ops.io.files import EventFile
from tfmini.train import summary_writer
from tfmini.train.summary_writer import EventFileWriter


def events_in(folder: Path) -> list[list[Any]]:
    return [list(tf.train.summary_iterator(str(path))) for path in sorted(folder.glob("events*"))]


def scalar(value: float, tag: str = "loss") -> Any:
    return tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value)])


def run_metadata() -> Any:
    metadata = tf.RunMetadata()
    metadata.step_stats.dev_stats.add(device="/cpu:0")
    return metadata


def write_everything(folder: Path) -> None:
    merged = tf.summary.merge([tf.summary.scalar("loss", 0.5), tf.summary.histogram("h", [1.0, 2.0, 2.0])])
    text = tf.summary.text("t", tf.constant(["hello"]))
    image = tf.summary.image("i", tf.zeros([1, 4, 4, 3]))
    with tf.Session() as session, tf.summary.FileWriter(str(folder), session.graph) as writer:
        for step in range(3):
            writer.add_summary(session.run(merged), step)
            writer.add_summary(session.run(text), step)
        writer.add_summary(session.run(image), 3)
        writer.add_session_log(tf.SessionLog(status=tf.SessionLog.CHECKPOINT), 3)
        writer.add_run_metadata(run_metadata(), "step 1", 4)


def test_events_of_each_kind_are_written(tmp_path: Path) -> None:
    write_everything(tmp_path)
    [events] = events_in(tmp_path)
    assert events[0].file_version == "brain.Event:2"
    kinds = [e.WhichOneof("what") for e in events]
    assert kinds[:3] == ["file_version", "graph_def", "meta_graph_def"]
    assert kinds[3:] == ["summary"] * 7 + ["session_log", "tagged_run_metadata"]
    assert [e.step for e in events[3:]] == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert all(e.wall_time > 1e9 for e in events)
    assert tf.GraphDef.FromString(events[1].graph_def).node[0].attr["_output_shapes"].list.shape


@pytest.mark.oracle
def test_tensorboard_reads_our_files_and_we_read_tensorflows(oracle: Oracle, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_everything(ours)
    found = oracle.call(oracle_event_files.read_and_write, str(ours), str(theirs))
    if found is None:
        pytest.skip("no TensorBoard beside TensorFlow")
    assert found["version"] == 2.0
    nodes = [op.name for op in tf.get_default_graph().get_operations()]
    assert found["graph_nodes"] == found["meta_graph_nodes"] == nodes
    assert found["run_metadata_devices"] == ["/cpu:0"]
    shown = {"images": ["i/image/0"], "histograms": ["h"], "scalars": ["loss"], "tensors": ["t"], "graph": True}
    assert {kind: found["tags"][kind] for kind in shown} == shown
    assert found["losses"] == [0.5, 0.5, 0.5]
    assert len(found["by_tensorflow"]) == len(events_in(ours)[0])
    [events] = events_in(theirs)
    [summary] = [e for e in events if e.WhichOneof("what") == "summary"]
    assert summary.step == 3
    assert {v.tag for v in summary.summary.value} == {"loss", "h"}


def test_metadata_stays_with_the_first_value_of_a_tag(tmp_path: Path) -> None:
    value = tf.Summary.Value(tag="t", simple_value=1.0, metadata=protos.SummaryMetadata(display_name="shown"))
    summary = tf.Summary(value=[value])
    with tf.summary.FileWriter(str(tmp_path)) as writer:
        writer.add_summary(summary)
        writer.add_summary(summary.SerializeToString())
    [events] = events_in(tmp_path)
    assert [e.summary.value[0].metadata.display_name for e in events[1:]] == ["shown", ""]
    assert summary.value[0].metadata.display_name == "shown"  # the caller's own message is left alone


def test_flush_puts_events_on_the_disk(tmp_path: Path) -> None:
    with tf.summary.FileWriter(str(tmp_path), flush_secs=1000) as writer:
        for step in range(5):
            writer.add_summary(scalar(step), step)
        writer.flush()
        assert [e.step for e in events_in(tmp_path)[0]] == [0, 0, 1, 2, 3, 4]


def test_close_and_reopen_begin_another_file(tmp_path: Path) -> None:
    writer = tf.summary.FileWriter(str(tmp_path))
    writer.add_summary(scalar(1.0), 1)
    writer.close()
    with pytest.warns(UserWarning, match="closed FileWriter"):
        writer.add_summary(scalar(2.0), 2)
    writer.reopen()
    writer.add_summary(scalar(3.0), 3)
    writer.close()
    writer.close()
    assert [[e.step for e in events[1:]] for events in events_in(tmp_path)] == [[1], [3]]


def test_two_writers_of_one_second_have_files_of_their_own(tmp_path: Path) -> None:
    with tf.summary.FileWriter(str(tmp_path)) as one, tf.summary.FileWriter(str(tmp_path)) as two:
        one.add_summary(scalar(1.0), 1)
        two.add_summary(scalar(2.0), 2)
    assert sorted(events[1].step for events in events_in(tmp_path)) == [1, 2]


def test_files_have_the_suffix_and_their_directory_is_made(tmp_path: Path) -> None:
    writer = tf.summary.FileWriter(tmp_path / "a" / "b", filename_suffix=".mine")
    assert writer.get_logdir() == str(tmp_path / "a" / "b")
    [path] = (tmp_path / "a" / "b").iterdir()
    assert path.name.startswith("events.out.tfevents.")
    assert path.name.endswith(".mine")
    writer.close()


@pytest.mark.parametrize("whole", [False, True])
def test_a_deleted_file_is_replaced(tmp_path: Path, whole: bool) -> None:
    """Also if its directory has gone, as where a program empties the directory of its model between two trainings."""
    folder = tmp_path / "logs"
    with tf.summary.FileWriter(str(folder)) as writer:
        writer.add_summary(scalar(1.0), 1)
        writer.flush()
        for path in folder.iterdir():
            path.unlink()
        if whole:
            folder.rmdir()
        writer.add_summary(scalar(2.0), 2)
        writer.flush()
        writer.add_summary(scalar(3.0), 3)
    assert [e.step for e in events_in(folder)[0][1:]] == [2, 3]


def test_events_that_are_lost_with_their_file_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = EventFile(str(tmp_path / "events"))
    file.write(protos.Event(step=1).SerializeToString())
    Path(file.path).unlink()
    file.flush()
    assert "has disappeared; 1 events are lost" in caplog.text
    file.write(protos.Event(step=2).SerializeToString())
    file.close()
    assert [e.step for e in events_in(tmp_path)[0][1:]] == [2]


def test_failure_to_write_reaches_the_caller_and_blocks_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    writer = EventFileWriter(str(folder), max_queue=1)
    folder.rmdir()
    for _ in range(4):  # more than the queue holds
        try:
            writer.add_event(protos.Event(step=1))
        except tf.errors.NotFoundError:
            break
    with pytest.raises(tf.errors.NotFoundError, match="logs/events"):
        writer.flush()
    with pytest.raises(tf.errors.NotFoundError, match="logs/events"):
        writer.close()
    writer.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_error_of_tensorflow_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: EventFile, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = EventFileWriter(str(tmp_path))
    writer.add_event(protos.Event(step=1))
    writer.flush()
    monkeypatch.setattr(EventFile, "write", fail)
    writer.add_event(protos.Event(step=2))
    with pytest.raises(tf.errors.ResourceExhaustedError, match="events.out.tfevents.*No space left"):
        writer.flush()
    with pytest.raises(tf.errors.ResourceExhaustedError):
        writer.close()


def test_at_the_end_each_writer_is_closed_and_lost_events_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone, good = tmp_path / "gone", tmp_path / "good"
    writers = [EventFileWriter(str(gone)), EventFileWriter(str(good))]
    gone.rmdir()
    for writer in writers:
        writer.add_event(protos.Event(step=1))
    summary_writer.close_all()  # as at the exit of Python, where nobody can catch an error
    assert [e.step for e in events_in(good)[0]] == [0, 1]
    assert f"events of {gone} are lost" in caplog.text


def test_an_event_that_is_none_reaches_the_caller_and_blocks_nobody(tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path), max_queue=1)
    writer.add_event("no event")
    with pytest.raises(AttributeError):
        writer.flush()
    with pytest.raises(AttributeError):
        writer.close()


def test_many_threads_share_a_writer(tmp_path: Path) -> None:
    with tf.summary.FileWriter(str(tmp_path), max_queue=2) as writer:
        threads = [
            threading.Thread(target=lambda n=n: [writer.add_summary(scalar(i), 100 * n + i) for i in range(20)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(e.step for e in events_in(tmp_path)[0][1:]) == [100 * n + i for n in range(4) for i in range(20)]


def test_interpreter_that_ends_loses_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, tfmini as tf\n"
        "w = tf.summary.FileWriter(sys.argv[1])\n"
        "for i in range(50): w.add_summary(tf.Summary(value=[tf.Summary.Value(tag='t', simple_value=i)]), i)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=200)
    assert [e.step for e in events_in(tmp_path)[0][1:]] == list(range(50))


def test_cache_has_one_writer_per_directory(tmp_path: Path) -> None:
    one = tf.summary.FileWriterCache.get(str(tmp_path / "a"))
    assert tf.summary.FileWriterCache.get(str(tmp_path / "a")) is one
    assert tf.summary.FileWriterCache.get(str(tmp_path / "b")) is not one
    tf.summary.FileWriterCache.clear()
    assert tf.summary.FileWriterCache.get(str(tmp_path / "a")) is not one
    tf.summary.FileWriterCache.clear()


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with tf.summary.FileWriter(str(tmp_path)) as writer:
        with pytest.raises(TypeError, match="must be an instance of `Graph`"):
            writer.add_graph("graph")
        with pytest.raises(ValueError, match="not both"):
            writer.add_graph(tf.get_default_graph(), graph_def=tf.GraphDef())
        with pytest.raises(TypeError, match="must be type MetaGraphDef"):
            writer.add_meta_graph(tf.GraphDef())
        writer.add_run_metadata(run_metadata(), "tag")
        with pytest.raises(ValueError, match="already used"):
            writer.add_run_metadata(run_metadata(), "tag")
