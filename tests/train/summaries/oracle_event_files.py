"""What TensorBoard and TensorFlow read in event files, and a file of theirs. (Runs there, see `tests.oracle`.)"""

from __future__ import annotations

import glob
import os
from typing import Any


def read_and_write(tf: Any, ours: str, theirs: str) -> dict[str, Any] | None:
    """What is in tfmini's event file in the directory ``ours``, after one was written to ``theirs``.

    None without TensorBoard.
    """
    try:
        from tensorboard.backend.event_processing import event_accumulator, event_file_loader
    except ImportError:
        return None
    [path] = glob.glob(os.path.join(ours, "events*"))
    accumulator = event_accumulator.EventAccumulator(ours)
    accumulator.Reload()
    _write(tf, theirs)
    return {
        "version": accumulator.file_version,
        "tags": accumulator.Tags(),
        "graph_nodes": [n.name for n in accumulator.Graph().node],
        "meta_graph_nodes": [n.name for n in accumulator.MetaGraph().graph_def.node],
        "run_metadata_devices": [d.device for d in accumulator.RunMetadata("step 1").step_stats.dev_stats],
        "steps": [e.step for e in event_file_loader.EventFileLoader(path).Load()],
        "losses": [e.value for e in accumulator.Scalars("loss")],
        "by_tensorflow": [str(e) for e in tf.train.summary_iterator(path)],
    }


def _write(tf: Any, directory: str) -> None:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        merged = tf.summary.merge([tf.summary.scalar("loss", 0.25), tf.summary.histogram("h", [1.0, 2.0])])
        with tf.summary.FileWriter(directory, graph) as writer:
            writer.add_summary(session.run(merged), 3)
