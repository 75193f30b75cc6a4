"""Runs in the oracle's interpreter: what TensorFlow makes of device strings and clusters.

stdin: JSON {"specs": [text], "merges": [[outer, inner]], "clusters": [{job: [address] | {index: address}}]}.
stdout: JSON with one answer each: a text (or {"text", "dict"} for a cluster), null where TensorFlow raises.
"""

import json
import sys

import tensorflow.compat.v1 as tf


def parsed(text):
    return tf.DeviceSpec.from_string(text)


def merged(pair):
    outer, inner = map(parsed, pair)
    return outer.make_merged_spec(inner).to_string()


def cluster(jobs):
    jobs = {
        job: {int(i): a for i, a in tasks.items()} if isinstance(tasks, dict) else tasks
        for job, tasks in jobs.items()
    }
    spec = tf.train.ClusterSpec(jobs)
    message = spec.as_cluster_def().SerializeToString(deterministic=True).hex()
    return {"text": str(spec), "dict": repr(spec.as_dict()), "message": message}


def answer(function, argument):
    try:
        return function(argument)
    except (ValueError, TypeError):
        return None


asked = json.load(sys.stdin)
json.dump(
    {
        "specs": [answer(lambda text: parsed(text).to_string(), text) for text in asked["specs"]],
        "merges": [answer(merged, pair) for pair in asked["merges"]],
        "clusters": [answer(cluster, jobs) for jobs in asked["clusters"]],
    },
    sys.stdout,
)
