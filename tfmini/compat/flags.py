"""``tf.flags`` and ``tf.app.flags``: absl's flags, as in TensorFlow.

They are absl's own flags, so a script may mix ``tf.flags`` and ``absl.flags``. tfmini adds two things:
the old argument names of the DEFINE functions, and a `FLAGS` that parses ``sys.argv`` when it is first read.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from absl import flags as absl_flags
from absl import logging as absl_logging  # noqa: F401 - defines flags, see below
from absl.flags import *  # noqa: F403 - the public names of tf.flags are absl's

from tfmini.export import export_names

absl_flags.disclaim_key_flags()  # a flag defined through this module belongs to its caller

# A script may define --log_dir and the like itself, as before TensorFlow used absl.
for _flag in absl_flags.FLAGS.flags_by_module_dict().get("absl.logging", []):
    _flag.allow_override = True

_OLD_ARGUMENTS = {"flag_name": "name", "default_value": "default", "docstring": "help"}


def _with_old_arguments(define: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(define)
    def wrapper(*args: object, **kwargs: Any) -> Any:
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

    def __setitem__(self, name: str, flag: Any) -> None:
        self.__dict__["_flags"][name] = flag

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__["_flags"]

    def __len__(self) -> int:
        return len(self.__dict__["_flags"])

    def __iter__(self) -> Any:
        return iter(self.__dict__["_flags"])

    def __str__(self) -> str:
        return str(self.__dict__["_flags"])

    def __call__(self, *args: object, **kwargs: Any) -> Any:
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
