"""Builds `sync_cases` in TensorFlow and writes descriptions of the graphs as JSON."""

from __future__ import annotations

import json
import sys

import sync_cases as cases
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
results = {}
for options in cases.OPTIONS:
    for sparse in (False, True):
        with tf.Graph().as_default() as graph:
            opt, train = cases.build(tf, options, sparse)
            results[f"{options}-{sparse}"] = {
                "train": train.name,
                "chief_init": opt.chief_init_op.name,
                "local_init": opt.local_step_init_op.name,
                "ready": opt.ready_for_local_init_op.name,
                "ops": cases.describe(graph),
            }
with open(sys.argv[1], "w") as file:
    json.dump(results, file)
