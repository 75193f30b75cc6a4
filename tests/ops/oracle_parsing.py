"""Runs in real TensorFlow: the cases of ``parsing_cases`` as JSON."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
spec = importlib.util.spec_from_file_location("cases", Path(__file__).with_name("parsing_cases.py"))
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)
E, S = cases.messages(tf)


def plain(value):
    array = np.asarray(value, object) if isinstance(value, bytes) else np.asarray(value)
    if array.dtype == object or isinstance(value, bytes):
        return {"dtype": "string", "value": [v.hex() for v in array.ravel().tolist()], "shape": list(array.shape)}
    return {"dtype": array.dtype.name, "value": array.ravel().tolist(), "shape": list(array.shape)}


found = {}
for name, expression in {**cases.CASES, **cases.ERRORS}.items():
    with tf.Graph().as_default(), tf.Session() as session:
        try:
            found[name] = plain(session.run(eval(expression)))  # noqa: S307 - our own cases
        except tf.errors.OpError as error:
            found[name] = {"error": type(error).__name__, "text": error.message}
json.dump(found, sys.stdout)
