"""What TensorBoard and TensorFlow read in tfmini's event files, and a file of theirs for tfmini to read."""

from __future__ import annotations

import glob
import json
import os
import sys

import tensorflow.compat.v1 as tf
from tensorboard.backend.event_processing import event_accumulator, event_file_loader

tf.disable_v2_behavior()
ours, theirs, answer = sys.argv[1:]

[path] = glob.glob(os.path.join(ours, "events*"))
accumulator = event_accumulator.EventAccumulator(ours)
accumulator.Reload()
found = {
    "version": accumulator.file_version,
    "tags": accumulator.Tags(),
    "graph_nodes": [n.name for n in accumulator.Graph().node],
    "meta_graph_nodes": [n.name for n in accumulator.MetaGraph().graph_def.node],
    "run_metadata_devices": [d.device for d in accumulator.RunMetadata("step 1").step_stats.dev_stats],
    "steps": [e.step for e in event_file_loader.EventFileLoader(path).Load()],
    "losses": [e.value for e in accumulator.Scalars("loss")],
    "by_tensorflow": [str(e) for e in tf.train.summary_iterator(path)],
}
with tf.Graph().as_default() as graph, tf.Session() as session:
    merged = tf.summary.merge([tf.summary.scalar("loss", 0.25), tf.summary.histogram("h", [1.0, 2.0])])
    with tf.summary.FileWriter(theirs, graph) as writer:
        writer.add_summary(session.run(merged), 3)
with open(answer, "w") as file:
    json.dump(found, file)
