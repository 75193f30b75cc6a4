"""Runs `optimizer_cases` in TensorFlow and writes values, names and dumps of the graphs as JSON."""

from __future__ import annotations

import json
import sys

import optimizer_cases as cases
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def describe(graph: tf.Graph) -> list[list[str]]:
    found = []
    for op in graph.get_operations():
        groups = sorted(g.decode() for g in op.colocation_groups() if g.decode() != f"loc:@{op.name}")
        controls = sorted(c.name for c in op.control_inputs)
        found.append([op.name, op.type, [t.name for t in op.inputs], controls, groups])
    return found


results = {}
for combination in cases.combinations():
    tf.reset_default_graph()
    opt, train, x = cases.build(tf, *combination)
    dump = describe(tf.get_default_graph())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values = []
        for _ in range(cases.STEPS):
            session.run(train)
            values.append(session.run(x).tolist())
        state = {v.name: session.run(v).tolist() for v in opt.variables()}
    results[repr(combination)] = {
        "values": values,
        "state": state,
        "slots": opt.get_slot_names(),
        "train": train.name,
        "graph": dump,
    }
schedules = {}
for source in cases.SCHEDULES:
    tf.reset_default_graph()
    step = tf.placeholder(tf.int64, [])
    rate = eval(source, {"tf": tf, "step": step})
    with tf.Session() as session:
        schedules[source] = [rate.name, [float(session.run(rate, {step: n})) for n in cases.SCHEDULE_STEPS]]
with open(sys.argv[1], "w") as file:
    json.dump({"runs": results, "schedules": schedules}, file)
