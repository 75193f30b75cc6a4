"""Where ``tf.contrib.slim.nets`` comes from, and what is said where it cannot come."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(script: str) -> list[str]:
    begin = "from tfmini.compat import internals\ninternals.install()\nimport tensorflow as tf, sys\n"
    done = subprocess.run([sys.executable, "-c", begin + script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_path_leads_to_the_same_functions() -> None:
    script = """
before = [name for name in sys.modules if "slim_copy" in name]
from tensorflow.contrib.slim.nets import vgg
from tensorflow.contrib.slim.python.slim.nets import vgg as b
from tensorflow.contrib.slim.python.slim.nets.vgg import vgg_16
import tensorflow.contrib.slim.nets as nets
import tensorflow.contrib.slim as slim
from tensorflow.contrib.slim import dataset, tfexample_decoder
from tensorflow.contrib.slim.python.slim.data.dataset import Dataset
from tensorflow.contrib.slim.python.slim import queues
print(before, vgg is b is nets.vgg is tf.contrib.slim.nets.vgg is tf.compat.v1.contrib.slim.nets.vgg)
print(vgg_16 is vgg.vgg_16, Dataset is dataset.Dataset, queues is slim.queues, "tf_slim" in sys.modules)
for text in ("import tensorflow.contrib.slim.nets.nothing", "from tensorflow.contrib.slim.nets import nothing"):
    try: exec(text)
    except ImportError as error: print("nothing" in str(error))
"""
    assert run(script) == ["[] True", "True True True False", "True", "True"]


@pytest.mark.parametrize(
    ("version", "told"), [(None, "which is not installed"), ("1.0.0", "and tf_slim 1.0.0 is installed")]
)
def test_without_tf_slim_the_error_says_what_to_install(version: str | None, told: str) -> None:
    script = f"""
import importlib.metadata
from tfmini.compat import library_copy
def distribution(name):
    if {version!r} is None: raise importlib.metadata.PackageNotFoundError(name)
    class D: version = {version!r}
    return D
library_copy.distribution = distribution
print(hasattr(tf.contrib.slim, "nets"), hasattr(tf.contrib.slim, "conv2d"))
for text in ("tf.contrib.slim.nets", "from tensorflow.contrib.slim.nets import vgg",
             "from tensorflow.contrib.slim.python.slim.data import dataset"):
    try: exec(text)
    except (AttributeError, ImportError) as error:
        print({told!r} in str(error) and "pip install 'tfmini-cluster[slim]'" in str(error))
"""
    assert run(script) == ["False True", "True", "True", "True"]
