"""The result of `Checkpoint.restore`: checks that objects and values match, and ops that assign the values."""

from __future__ import annotations

from typing import Any

from tfmini.graph.scopes import get_default_session
from tfmini.ops.tables import LookupInterface
from tfmini.ops.variables.base import Variable
from tfmini.runtime.client.session import BaseSession
from tfmini.train.checkpointing.graph_files import CheckpointReader
from tfmini.train.checkpointing.object_graph import Match, ObjectGraph, match, names_in, object_graph_of, saver_items
from tfmini.train.checkpointing.saver import Saver


class LoadStatus:
    """Base class of the results of `Checkpoint.restore`; the assertions return the status itself.

    Args:
      checkpoint: the `Checkpoint` whose objects are restored.
    """

    def __init__(self, checkpoint: Any) -> None:
        self._checkpoint = checkpoint

    def assert_consumed(self) -> LoadStatus:
        """Checks that every object has a value in the checkpoint, and every value an object.

        Raises:
          AssertionError: when one is unmatched; it names the object or value.
        """
        raise NotImplementedError

    def assert_existing_objects_matched(self) -> LoadStatus:
        """Checks that every object has a value in the checkpoint.

        Raises:
          AssertionError: when objects are unmatched; it names them.
        """
        raise NotImplementedError

    def assert_nontrivial_match(self) -> LoadStatus:
        """Checks that at least one object besides the root has a value in the checkpoint.

        Raises:
          AssertionError: when none has.
        """
        raise NotImplementedError

    def run_restore_ops(self, session: BaseSession | None = None) -> None:
        """Assigns their values to the matched objects, in ``session`` or the default session."""
        raise NotImplementedError

    def initialize_or_restore(self, session: BaseSession | None = None) -> None:
        """Assigns their values to the matched objects and initializes the other variables."""
        raise NotImplementedError

    def expect_partial(self) -> LoadStatus:
        """Accepted and ignored: there are no warnings about unused values."""
        return self

    def _objects(self) -> list[Any]:
        return [item.thing for item in ObjectGraph(self._checkpoint).reached]

    def _initialize(self, session: BaseSession | None, except_for: set[int]) -> None:
        """Runs the initializers of variables and tables, but for those that have these ids."""
        new = [thing for thing in self._objects() if id(thing) not in except_for]
        made = [v.initializer for v in new if isinstance(v, (Variable, LookupInterface)) and hasattr(v, "initializer")]
        session_or_default(session).run(made)


def session_or_default(session: BaseSession | None) -> Any:
    """``session`` or the default session; raises ValueError if there is neither."""
    found = session or get_default_session()
    if found is None:
        raise ValueError(
            "A tf.train.Checkpoint needs a session: pass `session=`, or call it inside `with sess.as_default()`."
        )
    return found


class CheckpointLoadStatus(LoadStatus):
    """Restores an object-based checkpoint.

    Objects that are made after ``restore`` are matched when one of the methods is called.

    Args:
      prefix: the checkpoint's prefix.
      graph: the checkpoint's TrackableObjectGraph message.
    """

    def __init__(self, checkpoint: Any, prefix: str, graph: Any) -> None:
        super().__init__(checkpoint)
        self._prefix = prefix
        self._graph = graph
        self._read: set[str] = set()
        self._read_states()
        self._restorer()  # makes the ops now, since the graph may be finalized later

    def _match(self) -> Match:
        return match(self._checkpoint, self._graph)

    def _read_states(self) -> None:
        """Gives their states to Python objects, each once."""
        states = {key: state for key, state in self._match().states.items() if key not in self._read}
        reader = CheckpointReader(self._prefix) if states else None
        for key, state in states.items():
            self._read.add(key)
            state.deserialize(reader.get_tensor(key))  # type: ignore[union-attr]

    def _restorer(self) -> Saver | None:
        variables = self._match().variables
        return self._checkpoint._saver_of(variables) if variables else None

    def assert_consumed(self) -> LoadStatus:
        self.assert_existing_objects_matched()
        found = self._match()
        for number, name in enumerate(names_in(self._graph)):
            if number not in found.found:
                raise AssertionError(f"Unresolved object in checkpoint {name}: {self._graph.nodes[number]}")
        if found.unused:
            lines = "\n".join(f"{key}: {name}" for key, name in found.unused)
            raise AssertionError(
                "Unused attributes in these objects (the attributes exist in the checkpoint but were not restored):\n"
                f"{lines}"
            )
        return self

    def assert_existing_objects_matched(self) -> LoadStatus:
        bound = {id(thing) for thing in self._match().found.values()}
        reached = ObjectGraph(self._checkpoint).reached
        unbound = [item.path for item in reached if id(item.thing) not in bound]
        if unbound:
            raise AssertionError(
                "Some Python objects were not bound to checkpointed values, likely due to changes in the Python"
                f" program: {unbound}"
            )
        return self

    def assert_nontrivial_match(self) -> LoadStatus:
        if len(self._match().found) <= 1:
            raise AssertionError(
                "Nothing except the root object matched a checkpointed value. Typically this means that the checkpoint"
                f" does not match the Python program. The checkpoint is {self._prefix}."
            )
        return self

    def run_restore_ops(self, session: BaseSession | None = None) -> None:
        self._read_states()
        restorer = self._restorer()
        if restorer is not None:
            restorer.restore(session_or_default(session), self._prefix)

    def initialize_or_restore(self, session: BaseSession | None = None) -> None:
        matched = {id(thing) for thing in self._match().found.values()}
        self.run_restore_ops(session)
        self._initialize(session, matched)


class InitializationOnlyStatus(LoadStatus):
    """The status without a checkpoint: `initialize_or_restore` initializes, the other methods raise."""

    def assert_consumed(self) -> LoadStatus:
        raise AssertionError("No checkpoint specified (save_path=None); nothing is being restored.")

    assert_existing_objects_matched = assert_nontrivial_match = assert_consumed

    def run_restore_ops(self, session: BaseSession | None = None) -> None:
        raise AssertionError(
            "No checkpoint specified, so no restore ops are available (save_path=None to Saver.restore)."
        )

    def initialize_or_restore(self, session: BaseSession | None = None) -> None:
        self._initialize(session, set())


class NameBasedSaverStatus(LoadStatus):
    """Restores a name-based checkpoint, which a `Saver` wrote.

    Args:
      reader: the checkpoint's reader.
      prefix: the checkpoint's prefix.
    """

    def __init__(self, checkpoint: Any, reader: CheckpointReader, prefix: str) -> None:
        super().__init__(checkpoint)
        self._reader = reader
        self._prefix = prefix
        self._saver: Saver | None = None

    def _wanted(self) -> list[Any]:
        # A Saver's checkpoint has no save counter.
        return [thing for thing in self._objects() if thing is not self._checkpoint._save_counter]

    def assert_consumed(self) -> LoadStatus:
        for variable in (thing for thing in self._wanted() if isinstance(thing, Variable)):
            if not self._reader.has_tensor(variable.op.name):
                raise AssertionError(f"Object not restored: {variable}")
        return self

    assert_existing_objects_matched = assert_nontrivial_match = assert_consumed

    def run_restore_ops(self, session: BaseSession | None = None) -> None:
        session = session_or_default(session)
        self._saver = self._saver or Saver(saver_items(self._wanted()), max_to_keep=None)
        self._saver.restore(session, self._prefix)
        if self._checkpoint._save_counter is not None:
            session.run(self._checkpoint._save_counter.initializer)

    initialize_or_restore = run_restore_ops


def status_of(checkpoint: Any, save_path: str | None) -> LoadStatus:
    """The status for restoring a checkpoint; ``save_path`` None means no checkpoint.

    Raises:
      NotFoundError: when there is no such checkpoint.
    """
    if save_path is None:
        return InitializationOnlyStatus(checkpoint)
    reader = CheckpointReader(save_path)
    graph = object_graph_of(reader)
    if graph is None:
        return NameBasedSaverStatus(checkpoint, reader, save_path)
    return CheckpointLoadStatus(checkpoint, save_path, graph)
