"""``tf.train.Scaffold``: the ops and objects that a training session needs in addition to the model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import add_to_collection, get_collection
from tfmini.ops.array.joining import concat
from tfmini.ops.control import group
from tfmini.ops.summary import merge_all
from tfmini.ops.tables import tables_initializer
from tfmini.ops.variables.functions import (
    global_variables,
    global_variables_initializer,
    initialize_resources,
    local_resources,
    local_variables_initializer,
    report_uninitialized_resources,
    report_uninitialized_variables,
    shared_resources,
)
from tfmini.train.checkpointing.saver import Saver, get_saver_or_default

_log = logging.getLogger("tensorflow")


@export("tf.train.Scaffold")
class Scaffold:
    """The ops to initialize, check, save and summarize a model (``tf.train.Scaffold``).

    `finalize` looks up missing ones in the graph's collections, and creates those that are not there.

    Args:
      init_op: initializes the global variables. Only the chief runs it, and only if there is no checkpoint.
      init_feed_dict: feeds for ``init_op``.
      init_fn: called as ``init_fn(scaffold, session)`` after ``init_op``.
      ready_op: a 1-D string tensor with the names of uninitialized variables; empty when the model is ready.
      ready_for_local_init_op: the same for the variables that ``local_init_op`` reads.
      local_init_op: initializes the state that each session has for itself.
      summary_op: a string tensor with a serialized Summary.
      saver: a Saver.
      copy_from_scaffold: a scaffold that provides values for missing arguments.

    Raises:
      TypeError: when ``copy_from_scaffold`` is no Scaffold.
    """

    def __init__(
        self,
        init_op: object = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[..., Any] | None = None,
        ready_op: object = None,
        ready_for_local_init_op: object = None,
        local_init_op: object = None,
        summary_op: object = None,
        saver: Saver | None = None,
        copy_from_scaffold: Scaffold | None = None,
    ) -> None:
        self._init_op = init_op
        self._init_feed_dict = init_feed_dict
        self._user_init_fn = init_fn
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._local_init_op = local_init_op
        self._summary_op = summary_op
        self._saver = saver
        if copy_from_scaffold is not None:
            self._copy_missing(copy_from_scaffold)

    def _copy_missing(self, other: Scaffold) -> None:
        if not isinstance(other, Scaffold):
            raise TypeError("copy_from_scaffold is not a Scaffold instance.")
        for field in vars(self):
            if getattr(self, field) is None:
                setattr(self, field, getattr(other, field))

    def finalize(self) -> Scaffold:
        """Finds or creates missing ops, and finalizes the default graph.

        Raises:
          RuntimeError: when a collection has several candidates.
        """
        choose = Scaffold.get_or_default
        if self._init_op is None:
            self._init_op = choose("init_op", GraphKeys.INIT_OP, _default_init_op)
        if self._ready_op is None:
            self._ready_op = choose("ready_op", GraphKeys.READY_OP, _default_ready_op)
        if self._ready_for_local_init_op is None:
            self._ready_for_local_init_op = choose(
                "ready_for_local_init_op", GraphKeys.READY_FOR_LOCAL_INIT_OP, _default_ready_for_local_init_op
            )
        if self._local_init_op is None:
            self._local_init_op = choose("local_init_op", GraphKeys.LOCAL_INIT_OP, Scaffold.default_local_init_op)
        if self._summary_op is None:
            self._summary_op = choose("summary_op", GraphKeys.SUMMARY_OP, merge_all)
        if self._saver is None:
            self._saver = get_saver_or_default()
        self._saver.build()
        get_default_graph().finalize()
        _log.info("Graph was finalized.")
        return self

    @staticmethod
    def get_or_default(arg_name: str, collection_key: str, default_constructor: Callable[[], Any]) -> Any:
        """The only member of a collection; if there is none, adds the result of ``default_constructor``.

        Raises:
          RuntimeError: when the collection has several members.
        """
        elements = get_collection(collection_key)
        if len(elements) > 1:
            raise RuntimeError(
                f'More than one item in the collection "{collection_key}". Please indicate which one to use by passing'
                f" it to the tf.Scaffold constructor as:  tf.Scaffold({arg_name}=item to use)"
            )
        if elements:
            return elements[0]
        made = default_constructor()
        if made is not None:
            add_to_collection(collection_key, made)
        return made

    @staticmethod
    def default_local_init_op() -> Operation:
        """An op that initializes local variables, tables and local resources."""
        return group(local_variables_initializer(), tables_initializer(), initialize_resources(local_resources()))

    @property
    def init_fn(self) -> Callable[[Any], Any] | None:
        """A function of the session that calls the given ``init_fn`` with this scaffold; None if none was given."""
        user_init_fn = self._user_init_fn
        if not user_init_fn:
            return None
        return lambda sess: user_init_fn(self, sess)

    @property
    def init_op(self) -> Any:
        """The op that initializes the global variables."""
        return self._init_op

    @property
    def init_feed_dict(self) -> Any:
        """Feeds for `init_op`."""
        return self._init_feed_dict

    @property
    def ready_op(self) -> Any:
        """The names of uninitialized variables, a string vector."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """The names of uninitialized variables that `local_init_op` reads, a string vector."""
        return self._ready_for_local_init_op

    @property
    def local_init_op(self) -> Any:
        """The op that initializes the state that each session has for itself."""
        return self._local_init_op

    @property
    def summary_op(self) -> Any:
        """The merged summaries; None if there are none."""
        return self._summary_op

    @property
    def saver(self) -> Any:
        """The Saver."""
        return self._saver


def _default_init_op() -> Operation:
    return group(global_variables_initializer(), initialize_resources(shared_resources()))


def _default_ready_op() -> Tensor:
    return concat([report_uninitialized_variables(), report_uninitialized_resources()], 0)


def _default_ready_for_local_init_op() -> Tensor:
    variables = report_uninitialized_variables(global_variables())
    return concat([variables, report_uninitialized_resources(shared_resources())], 0)
