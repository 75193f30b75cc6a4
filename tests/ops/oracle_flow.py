"""Run by a Python that has TensorFlow: the cases' values and graphs, and the values of tfmini's GraphDefs.

Reads {"graphs": {case: {"graph": base64, "fetches": [names], "feeds": {name: value}}}} from stdin.
"""

from __future__ import annotations

import base64
import json
import sys

import flow_cases
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.disable_control_flow_v2()


def plain(values):
    return [None if value is None else np.asarray(value).tolist() for value in values]


def native(source):
    with tf.Graph().as_default() as graph, tf.Session() as session:
        fetches, feeds = flow_cases.build(source, tf, np)
        return {"values": plain(session.run(fetches, feeds)), "nodes": flow_cases.flow_nodes(graph.as_graph_def())}


def imported(case):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(tf.GraphDef.FromString(base64.b64decode(case["graph"])), name="")
        return plain(session.run(case["fetches"], case["feeds"]))


given = json.load(sys.stdin)
answer = {"native": {}, "imported": {}}
for kind, function, inputs in (("native", native, flow_cases.CASES), ("imported", imported, given["graphs"])):
    for name, case in inputs.items():
        try:
            answer[kind][name] = function(case)
        except Exception as error:  # noqa: BLE001 - the test shows it
            answer[kind][name] = {"error": repr(error)[:2000]}
json.dump(answer, sys.stdout)
