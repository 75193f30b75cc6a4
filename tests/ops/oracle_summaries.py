"""Runs `summary_cases` in TensorFlow; reads tfmini's results for the same and says what differs."""

from __future__ import annotations

import json
import sys

import numpy as np
import summary_cases as cases
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def plain(serialized: bytes) -> tf.Summary:
    """The summary with pixels where the PNG stood."""
    summary = tf.Summary.FromString(serialized)
    for value in summary.value:
        if value.HasField("image"):
            with tf.Graph().as_default(), tf.Session() as session:
                pixels = session.run(tf.io.decode_png(value.image.encoded_image_string))
            value.image.encoded_image_string = repr(pixels.shape).encode() + pixels.tobytes()
    return summary


def run(expression: str) -> bytes:
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(cases.build(tf, np, expression))


def error_of(expression: str) -> str:
    try:
        run(expression)
    except tf.errors.OpError as error:
        return error.message
    return "no error"


with open(sys.argv[1]) as file:
    ours = {expression: bytes.fromhex(text) for expression, text in json.load(file).items()}
differences = {}
for expression in cases.EXPRESSIONS:
    theirs = run(expression)
    if b"PNG" not in theirs and theirs != ours[expression] or plain(theirs) != plain(ours[expression]):
        differences[expression] = [str(plain(theirs))[:2000], str(plain(ours[expression]))[:2000]]
with open(sys.argv[2], "w") as file:
    json.dump({"differences": differences, "errors": {e: error_of(e) for e in cases.ERRORS}}, file)
