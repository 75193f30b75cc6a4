"""Runs in the oracle's interpreter: where TensorFlow's replica_device_setter puts a sequence of ops.

stdin: JSON [[keyword arguments, [[op type, requested device], ...]], ...].
stdout: JSON, per case the list of devices, or null where there is no device function.
"""

import json
import sys

import tensorflow.compat.v1 as tf


def placed(arguments, ops):
    function = tf.train.replica_device_setter(**arguments)
    if function is None:
        return None
    return [
        function(tf.NodeDef(name=f"n{number}", op=op, device=device))
        for number, (op, device) in enumerate(ops)
    ]


json.dump([placed(arguments, ops) for arguments, ops in json.load(sys.stdin)], sys.stdout)
