"""Runs the variable cases in TensorFlow and prints their outcomes as JSON (a subprocess of the tests)."""

import json
import sys

import tensorflow.compat.v1 as tf

sys.path.insert(0, sys.argv[1])
from variable_cases import CASES, outcome

tf.disable_v2_behavior()
tf.disable_resource_variables()
found = {}
for name, source in CASES.items():
    with tf.Graph().as_default() as graph:
        found[name] = outcome(tf, source, graph)
print(json.dumps(found))
