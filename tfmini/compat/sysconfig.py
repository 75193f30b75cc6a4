"""``tf.sysconfig``: paths and flags for building C++ ops. tfmini has none, so the functions raise an error."""

from __future__ import annotations

from typing import NoReturn

from tfmini.export import export, export_names

CXX11_ABI_FLAG = 1
MONOLITHIC_BUILD = 0


def _refuse() -> NoReturn:
    raise NotImplementedError("tfmini has no C++ library to compile against; write the op in Python with tf.py_func.")


@export("tf.sysconfig.get_include")
def get_include() -> str:
    """Raises NotImplementedError: there are no header files (``tf.sysconfig.get_include``)."""
    _refuse()


@export("tf.sysconfig.get_lib")
def get_lib() -> str:
    """Raises NotImplementedError: there is no library (``tf.sysconfig.get_lib``)."""
    _refuse()


@export("tf.sysconfig.get_compile_flags")
def get_compile_flags() -> list[str]:
    """Raises NotImplementedError: there is nothing to compile against (``tf.sysconfig.get_compile_flags``)."""
    _refuse()


@export("tf.sysconfig.get_link_flags")
def get_link_flags() -> list[str]:
    """Raises NotImplementedError: there is nothing to link (``tf.sysconfig.get_link_flags``)."""
    _refuse()


export_names("tf.sysconfig", "CXX11_ABI_FLAG MONOLITHIC_BUILD")
