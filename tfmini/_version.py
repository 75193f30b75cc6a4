"""The version of tfmini, and the version of TensorFlow's API that it follows.

``tf.__version__``, ``tf.VERSION`` and ``tf.version.VERSION`` are ``API_VERSION``, because scripts compare
them to choose between API variants.
"""

from __future__ import annotations

from tfmini.export import export_names

__version__ = "0.2.0"
API_VERSION = "1.15.0"
# Scripts print these: the sources and the compiler of TensorFlow's build. tfmini has no build.
GIT_VERSION = f"tfmini-{__version__}"
COMPILER_VERSION = "none"
CXX11_ABI_FLAG = 1
MONOLITHIC_BUILD = 0

export_names("tf", "CXX11_ABI_FLAG MONOLITHIC_BUILD")
export_names("tf tf.version", "COMPILER_VERSION GIT_VERSION VERSION=API_VERSION")
