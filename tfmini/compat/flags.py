"""``tf.flags`` (absl's flags, as in TensorFlow), ``tf.app.run``, ``tf.resource_loader`` and ``tf.sysconfig``.

The flags are absl's own, so a script may mix ``tf.flags`` and ``absl.flags``. tfmini adds two things:
the old argument names of the DEFINE functions, and a `FLAGS` that parses ``sys.argv`` when it is first read.
"""

from __future__ import annotations

import difflib
import functools
import os
import sys
from collections.abc import Callable, Sequence
from logging import LogRecord
from typing import Any, NoReturn

from absl import app as absl_app
from absl import flags as absl_flags
from absl import logging as absl_logging  # noqa: F401 - defines flags, see below
from absl.flags import *  # noqa: F403 - the public names of tf.flags are absl's

from tfmini.compat.tf_logging import get_logger
from tfmini.export import export, export_names

absl_flags.disclaim_key_flags()  # a flag defined through this module belongs to its caller

# A script may define --log_dir and the like itself, as before TensorFlow used absl.
for _flag in absl_flags.FLAGS.flags_by_module_dict().get("absl.logging", []):
    _flag.allow_override = True

_OLD_ARGUMENTS = {"flag_name": "name", "default_value": "default", "docstring": "help"}


def _with_old_arguments(define: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(define)
    def wrapper(*args: object, **kwargs: object) -> Any:
        return define(*args, **{_OLD_ARGUMENTS.get(name, name): value for name, value in kwargs.items()})

    return wrapper


DEFINE_string = _with_old_arguments(absl_flags.DEFINE_string)
DEFINE_boolean = DEFINE_bool = _with_old_arguments(absl_flags.DEFINE_boolean)
DEFINE_float = _with_old_arguments(absl_flags.DEFINE_float)
DEFINE_integer = _with_old_arguments(absl_flags.DEFINE_integer)


class _SelfParsingFlags:
    """absl's FLAGS, which parses the command line when a flag is read before."""

    def __init__(self, flags: absl_flags.FlagValues) -> None:
        self.__dict__["_flags"] = flags

    def __getattr__(self, name: str) -> Any:
        flags = self.__dict__["_flags"]
        if name in flags and not flags.is_parsed():
            flags(sys.argv)
        return getattr(flags, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__dict__["_flags"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_flags"], name)

    def __dir__(self) -> list[str]:
        return list(dir(self.__dict__["_flags"]))

    def __getitem__(self, name: str) -> Any:
        return self.__dict__["_flags"][name]

    def __setitem__(self, name: str, flag: object) -> None:
        self.__dict__["_flags"][name] = flag

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__["_flags"]

    def __len__(self) -> int:
        return len(self.__dict__["_flags"])

    def __iter__(self) -> Any:
        return iter(self.__dict__["_flags"])

    def __str__(self) -> str:
        return str(self.__dict__["_flags"])

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.__dict__["_flags"](*args, **kwargs)


FLAGS: Any = _SelfParsingFlags(absl_flags.FLAGS)  # type: ignore[no-redef] # absl's, from the star

export_names(
    "tf.flags",
    "ArgumentParser ArgumentSerializer BaseListParser BooleanFlag BooleanParser CantOpenFlagFileError "
    "CsvListSerializer DEFINE DEFINE_alias DEFINE_bool DEFINE_boolean DEFINE_enum DEFINE_enum_class DEFINE_flag "
    "DEFINE_float DEFINE_integer DEFINE_list DEFINE_multi DEFINE_multi_enum DEFINE_multi_enum_class "
    "DEFINE_multi_float DEFINE_multi_integer DEFINE_multi_string DEFINE_spaceseplist DEFINE_string "
    "DuplicateFlagError EnumClassFlag EnumClassListSerializer EnumClassParser EnumClassSerializer EnumFlag "
    "EnumParser Error FLAGS Flag FlagHolder FlagNameConflictsWithMethodError FlagValues FloatParser "
    "IllegalFlagValueError IntegerParser ListParser ListSerializer MultiEnumClassFlag MultiFlag "
    "UnparsedFlagAccessError UnrecognizedFlagError ValidationError WhitespaceSeparatedListParser "
    "adopt_module_key_flags declare_key_flag disclaim_key_flags doc_to_help flag_dict_to_args get_help_width "
    "mark_bool_flags_as_mutual_exclusive mark_flag_as_required mark_flags_as_mutual_exclusive mark_flags_as_required "
    "multi_flags_validator override_value register_multi_flags_validator register_validator set_default text_wrap "
    "validator",
)


# ---- ``tf.app.run``: parses the flags and calls ``main`` -----------------------------------------------------------


def _not_ours(record: LogRecord) -> bool:
    return record.name != "tensorflow"


def _parse(argv: Sequence[str] | None) -> list[str]:
    # absl adds its handler to the root logger; without the filter, each line of tf.logging would appear twice.
    absl_logging.get_absl_handler().addFilter(_not_ours)
    rest: list[str] = FLAGS(sys.argv if argv is None else argv, known_only=True)
    for argument in rest[1:]:
        if meant := _meant(argument):
            get_logger().warning("%s is no flag of this script and is left to main; is it --%s?", argument, meant)
    return rest


def _meant(argument: str) -> str | None:
    """The flag that an unknown one looks like: a misspelt flag would train with the default without a word."""
    if not argument.startswith("--") or argument == "--":
        return None
    name = argument[2:].partition("=")[0].replace("-", "_")
    defined = absl_flags.FLAGS.flags_by_module_dict()
    own = [flag.name for module, flags in defined.items() if not module.startswith("absl.") for flag in flags]
    return next(iter(difflib.get_close_matches(name, own, 1, cutoff=0.75)), None)


@export("tf.app.run")
def run(main: Callable[[list[str]], Any] | None = None, argv: list[str] | None = None) -> None:
    """Parses the flags, calls ``main(argv)`` with the remaining arguments, and exits with its result.

    ``tf.app.run``. As in TensorFlow, undefined flags remain for ``main``; one that looks like a misspelt flag is told.

    Args:
      main: default the ``main`` of the script.
      argv: default ``sys.argv``.
    """
    get_logger()  # first, since it would mistake the root logger that absl sets up for the user's own
    absl_app.run(main=main or sys.modules["__main__"].main, argv=argv, flags_parser=_parse)


# ---- ``tf.resource_loader``: files in the directory of the calling module ------------------------------------------


def _callers_directory() -> str:
    """The directory of the file that calls the function that calls this one."""
    return os.path.dirname(os.path.abspath(sys._getframe(2).f_code.co_filename))


@export("tf.resource_loader.get_data_files_path")
def get_data_files_path() -> str:
    """The directory of the caller's file (``tf.resource_loader.get_data_files_path``)."""
    return _callers_directory()


@export("tf.resource_loader.get_path_to_datafile")
def get_path_to_datafile(path: str) -> str:
    """The absolute path of a file beside the caller's (``tf.resource_loader.get_path_to_datafile``)."""
    return os.path.join(_callers_directory(), path)


@export("tf.resource_loader.load_resource")
def load_resource(path: str) -> bytes:
    """The content of a file beside the caller's (``tf.resource_loader.load_resource``)."""
    with open(os.path.join(_callers_directory(), path), "rb") as file:
        return file.read()


@export("tf.resource_loader.get_root_dir_with_all_resources")
def get_root_dir_with_all_resources() -> str:
    """The directory of the script (``tf.resource_loader.get_root_dir_with_all_resources``)."""
    return os.path.dirname(os.path.abspath(sys.argv[0]))


@export("tf.resource_loader.readahead_file_path")
def readahead_file_path(path: str, readahead: str = "128M") -> str:
    """``path`` itself (``tf.resource_loader.readahead_file_path``)."""
    return path


# ---- sysconfig ----------------------------------------
# ``tf.sysconfig``: paths and flags for building C++ ops. tfmini has none, so the functions raise an error.

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
