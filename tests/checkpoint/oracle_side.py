"""TensorFlow's side of the checkpoint tests: reads what tfmini wrote, writes the same for tfmini.

    python oracle_side.py DIRECTORY

``DIRECTORY/ours`` holds tfmini's files. TensorFlow's go to ``DIRECTORY/theirs``; what it read is printed as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")

import tensorflow.compat.v1 as tf

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.checkpoint import exchange

tf.disable_v2_behavior()


def main(directory: Path) -> dict[str, Any]:
    ours, theirs = directory / "ours", directory / "theirs"
    theirs.mkdir()
    exchange.write_all(tf, theirs)
    return exchange.read_all(tf, ours)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
