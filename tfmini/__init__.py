"""tfmini: TensorFlow 1.x's cluster model in Python. ``import tfmini as tf``.

`tfmini.public_names` lists the public names; this module only re-exports them. ``tf.__version__`` is the
TensorFlow release that the namespace follows; tfmini's own version is ``tfmini._version.__version__``.
"""

from __future__ import annotations

import tfmini.compat
import tfmini.data
import tfmini.dtypes
import tfmini.errors
import tfmini.estimator
import tfmini.layers
import tfmini.train
import tfmini.xla  # noqa: F401 - a public namespace that is also a package
from tfmini import _version, library_log, namespace

__version__ = _version.API_VERSION
__git_version__ = _version.GIT_VERSION
__compiler_version__ = _version.COMPILER_VERSION
__cxx11_abi_flag__ = _version.CXX11_ABI_FLAG
__monolithic_build__ = _version.MONOLITHIC_BUILD
library_log.library_logger()
namespace.install()
del library_log, namespace
