"""Where ``tf.keras`` comes from, and what is said where it cannot come."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import importlib.metadata, tfmini
def distribution(name):
    raise importlib.metadata.PackageNotFoundError(name)
from tfmini.compat import library_copy
library_copy.distribution = distribution
"""


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_keras_the_error_says_what_to_install() -> None:
    script = (
        WITHOUT
        + """
from tfmini.compat import internals
internals.install()
import tensorflow as tf
print(hasattr(tf.keras, "layers"), tf.keras.utils.to_categorical([1]).tolist())
for statement in ("tf.keras.layers.Dense", "from tensorflow.keras import layers", "import tensorflow.keras.models",
                  "from tensorflow.python.keras.layers import Dense"):
    try:
        exec(statement)
    except (AttributeError, ImportError) as error:
        print("pip install 'tfmini-cluster[keras]'" in str(error))
"""
    )
    assert run(script) == "False [[0.0, 1.0]]\n" + "True\n" * 4


def test_another_keras_is_refused_by_its_version() -> None:
    script = WITHOUT.replace(
        "raise importlib.metadata.PackageNotFoundError(name)", "class D: version = '3.5.0'\n    return D"
    )
    script += """
try: tfmini.keras.Model
except AttributeError as error: print(error)
"""
    assert "Keras 3.5.0 is installed: pip install 'tfmini-cluster[keras]'" in run(script)


def test_every_path_leads_to_the_same_class() -> None:
    script = """
from tfmini.compat import internals
internals.install()
import tensorflow as tf, sys
import tensorflow.keras.backend as K
from tensorflow.keras import layers
from tensorflow.keras.layers import Dense
from tensorflow.python.keras.layers import Dense as b
from tensorflow.python.keras import layers as c
from tensorflow.contrib.keras import layers as d
from tensorflow.keras.utils import to_categorical, plot_model
from tensorflow.keras.datasets import mnist, cifar10
from tensorflow.keras.preprocessing.text import Tokenizer
from tensorflow.python.keras import backend as private
print(Dense is b is c.Dense is d.Dense is layers.Dense is tf.keras.layers.Dense is tf.compat.v1.keras.layers.Dense)
print("keras" in sys.modules, tf.keras.__version__, K.floatx())
print(private.dot is K.dot, private.learning_phase() is K.learning_phase())
try: tf.keras.layers.Nothing
except AttributeError: print("no such layer")
try: tf.keras.nothing
except AttributeError as error: print("of Keras 2.3" in str(error))
"""
    assert run(script).splitlines() == ["True", "False 2.2.4-tf float32", "True True", "no such layer", "True"]


def test_version_2_has_the_optimizers_losses_and_metrics_of_keras() -> None:
    script = """
from tfmini.compat import internals
internals.install()
import tensorflow.compat.v2 as tf
from tensorflow.python.keras.utils import tf_utils
print(tf.optimizers is tf.keras.optimizers, tf.losses is tf.keras.losses, tf.metrics is tf.keras.metrics)
class Coercible: pass
print(tf_utils.is_symbolic_tensor(Coercible()))
tf_utils.register_symbolic_tensor_type(Coercible)
print(tf_utils.is_symbolic_tensor(Coercible()), tf_utils.is_symbolic_tensor(1))
"""
    assert run(script).splitlines() == ["True True True", "False", "True False"]


def test_keras_is_loaded_by_its_first_name() -> None:
    script = """
import sys, tfmini as tf
before = "tfmini.compat.tf_keras.keras" in sys.modules
tf.keras.layers.Dense(1)
print(before, "tfmini.compat.tf_keras.keras" in sys.modules, "tensorflow" in sys.modules)
"""
    assert run(script) == "False True False\n"


def test_the_alias_is_installed_and_removed_beside_a_keras_that_is_loaded() -> None:
    script = """
import tfmini as tf
tf.keras.layers.Dense
from tfmini.compat import internals
internals.install()
from tensorflow.python.keras.layers import Dense
internals.uninstall()
from tfmini.python.framework import ops
print(Dense is tf.keras.layers.Dense, ops.Tensor is tf.Tensor)
try: import tensorflow.python
except ModuleNotFoundError as error: print(error)
"""
    assert run(script).splitlines() == ["True True", "No module named 'tensorflow'"]


def test_no_file_is_left_in_the_home_folder(tmp_path: object) -> None:
    script = f"""
import os
os.environ["HOME"] = {str(tmp_path)!r}
import tfmini as tf
tf.keras.layers.Dense
print(os.listdir({str(tmp_path)!r}))
"""
    assert run(script) == "[]\n"


def test_contrib_has_keras_too() -> None:
    script = """
from tfmini.compat import internals
internals.install()
import tensorflow as tf
from tensorflow.contrib import keras
from tensorflow.contrib.keras import layers
print(tf.contrib.keras.layers.Dense is keras.layers.Dense is layers.Dense is tf.keras.layers.Dense)
"""
    assert run(script) == "True\n"
    script = WITHOUT + "print(hasattr(tfmini.contrib, 'keras'))\ntfmini.contrib.keras\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n" and "pip install 'tfmini-cluster[keras]'" in done.stderr
