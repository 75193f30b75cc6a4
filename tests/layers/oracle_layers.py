"""Runs the cases of `layer_cases` on TensorFlow and prints their outcomes as JSON."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
warnings.simplefilter("ignore")

import layer_cases as cases  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
found = {
    group: {name: cases.outcome(tf, build) for name, build in table.items()} for group, table in cases.GROUPS.items()
}
print("OUTCOME " + json.dumps(found))
