"""The version of tfmini itself.

``tf.__version__``, ``tf.VERSION`` and ``tf.version.VERSION`` are ``API_VERSION``, the TensorFlow
release whose behaviour the namespace follows: scripts compare them to choose between spellings.
"""

from __future__ import annotations

__version__ = "0.1.0"
API_VERSION = "1.15.0"
# Scripts print these two; there is no C++ build behind tfmini.
GIT_VERSION = f"tfmini-{__version__}"
COMPILER_VERSION = "none"
