"""``tf.estimator.WarmStartSettings``: which variables an estimator's training starts with."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from tfmini.export import export
from tfmini.train.checkpointing.warm_starting import warm_start

_log = logging.getLogger("tensorflow")


class _WarmStartSettings(NamedTuple):
    ckpt_to_initialize_from: Any
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Any = None
    var_name_to_prev_var_name: Any = None


@export("tf.estimator.WarmStartSettings")
class WarmStartSettings(_WarmStartSettings):
    """The arguments of `warm_start` (``tf.estimator.WarmStartSettings``).

    Args:
      ckpt_to_initialize_from: a checkpoint's prefix, or its directory.
      vars_to_warm_start: a regex for trainable variables, or a list; None for only those with a vocabulary.
      var_name_to_vocab_info: name of a variable -> `VocabInfo`.
      var_name_to_prev_var_name: name of a variable -> its name in the checkpoint.

    Raises:
      ValueError: without a checkpoint.
    """

    __slots__ = ()

    def __new__(
        cls,
        ckpt_to_initialize_from: Any,
        vars_to_warm_start: Any = ".*",
        var_name_to_vocab_info: Any = None,
        var_name_to_prev_var_name: Any = None,
    ) -> WarmStartSettings:
        if not ckpt_to_initialize_from:
            raise ValueError("`ckpt_to_initialize_from` MUST be set in WarmStartSettings")
        return super().__new__(
            cls,
            ckpt_to_initialize_from,
            vars_to_warm_start,
            var_name_to_vocab_info or {},
            var_name_to_prev_var_name or {},
        )

    def apply(self) -> None:
        """Makes the initializers of the default graph's variables load from the checkpoint."""
        _log.info("Warm-starting with WarmStartSettings: %s", tuple(self))
        warm_start(*self)


def warm_start_settings(given: Any) -> WarmStartSettings | None:
    """The settings of the argument ``warm_start_from``: None, settings, or a checkpoint.

    Raises:
      ValueError: for something else.
    """
    if given is None or isinstance(given, WarmStartSettings):
        return given
    if isinstance(given, (str, bytes)):
        return WarmStartSettings(ckpt_to_initialize_from=given)
    raise ValueError(f"warm_start_from must be a string or a WarmStartSettings, instead got {type(given)}")
