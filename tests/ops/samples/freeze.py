"""Asks TensorFlow for the answers to all samples and writes them; run by the interpreter that has it.

    $TFMINI_ORACLE tests/ops/samples/freeze.py [--check | --new] [room ...]

With ``--check`` nothing is written: the differences to the frozen answers are printed, and the exit status tells. With
``--new`` only the rows without an answer are asked; the others stay as they are.
"""

from __future__ import annotations

import os
import sys

# The repository in place of this script's folder, whose modules have the names of rooms (math, random).
sys.path[0] = os.path.abspath(f"{__file__}/../../../..")
os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0")

import tempfile  # noqa: E402
import types  # noqa: E402
from typing import Any  # noqa: E402

import tensorflow as tf2  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from tensorflow.python.framework import op_def_library  # noqa: E402

if tf2.__version__.startswith("1."):  # its numpy is too old for the package that has the type now
    sys.modules["ml_dtypes"] = types.SimpleNamespace(bfloat16=tf2.bfloat16.as_numpy_dtype)  # type: ignore[assignment]

from tests.ops.samples import frozen, notation  # noqa: E402

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)


def builder(name: str) -> Any:
    """TensorFlow's raw builder of an op, of one without a public name too."""
    raw = getattr(tf2.raw_ops, name, None)
    return raw or (lambda **arguments: op_def_library.apply_op(name, **arguments))


def answer(row: notation.Row) -> list[list[Any]]:
    """TensorFlow's answer to each step of a row."""
    with tempfile.TemporaryDirectory() as tmp, tf.Graph().as_default():
        steps, feeds = notation.build(row, tf, builder, tmp)
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
            return [_step(row, fetches, session.run(fetches, feeds), tmp) for fetches in steps]


def _step(row: notation.Row, fetches: list[Any], results: list[Any], tmp: str) -> list[Any]:
    answers = [frozen.encode(value, item.shape, tmp) for item, value in zip(fetches, results) if value is not None]
    return [item[:1] for item in answers] if row.compared == "shapes" else answers


def main(arguments: list[str]) -> int:
    """Freezes the rooms, or checks them; the number of rows that failed."""
    check, only_new = "--check" in arguments, "--new" in arguments
    rooms = [a for a in arguments if not a.startswith("-")]
    failed = 0
    for room in rooms or notation.rooms():
        before = frozen.read(room)
        answers: dict[str, Any] = {}
        for row in notation.rows(room):
            if row.compared == "nothing":
                continue
            if only_new and row.text in before:
                answers[row.text] = before[row.text]
                continue
            try:
                answers[row.text] = answer(row)
            except Exception as error:  # the next rows are wanted as well
                failed += 1
                print(f"{room}: {row.text}\n    {type(error).__name__}: {str(error)[:600]}")
                if row.text in before:  # what was frozen stays
                    answers[row.text] = before[row.text]
                continue
            if check and before.get(row.text) != answers[row.text]:
                failed += _report(row, before.get(row.text), answers[row.text])
        if not check:
            frozen.write(room, answers)
    return failed


def _report(row: notation.Row, before: Any, now: Any) -> int:
    flat_before = [tensor for step in before or [] for tensor in step]
    flat_now = [tensor for step in now for tensor in step]
    if len(flat_before) == len(flat_now):
        found = [frozen.difference(*pair, row.compared) for pair in zip(flat_now, flat_before)]
        if not any(found):
            return 0
    print(f"{row.room}: {row.text}\n    now {now}\n    frozen {before}")
    return 1


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
