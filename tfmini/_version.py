"""The version of tfmini itself.

``tf.__version__``, ``tf.VERSION`` and ``tf.version.VERSION`` are ``API_VERSION``, the TensorFlow
release whose behaviour the namespace follows: scripts compare them to choose between spellings.
"""

from __future__ import annotations

__version__ = "0.1.0"
API_VERSION = "1.15.0"
# What scripts print: which sources and compiler TensorFlow was built with. Here there are none.
GIT_VERSION = f"tfmini-{__version__}"
COMPILER_VERSION = "none"
CXX11_ABI_FLAG = 1
MONOLITHIC_BUILD = 0
