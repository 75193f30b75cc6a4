"""Session creators, which make the sessions of a monitored session (``tf.train.SessionCreator``)."""

from __future__ import annotations

import abc
from typing import Any

from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.train.sessions.scaffold import Scaffold
from tfmini.train.sessions.session_manager import SessionManager

WORKER_MAX_WAIT_S = 30 * 60


@export("tf.train.SessionCreator")
class SessionCreator(metaclass=abc.ABCMeta):
    """Base class of session creators.

    Attributes:
      max_recovery_s: seconds that a monitored session retries to create a session when a task is not reachable.
    """

    max_recovery_s: float = 7200.0

    @abc.abstractmethod
    def create_session(self) -> Any:
        """Makes a session with a ready model."""
        raise NotImplementedError(f"create_session is not implemented for {self}.")


class _ScaffoldedCreator(SessionCreator):
    """Base class of the two creators; makes a `SessionManager` from a scaffold at the first use."""

    def __init__(self, scaffold: Scaffold | None, master: str, config: Any) -> None:
        self._scaffold = scaffold or Scaffold()
        self._session_manager: SessionManager | None = None
        self._master = master
        self._config = config

    @property
    def model(self) -> str:
        """`SessionManager.model` of the latest session."""
        return "" if self._session_manager is None else self._session_manager.model

    def end_run(self) -> None:
        """The run has ended in good order for this worker: see `SessionManager.end_run`."""
        self._get_session_manager().end_run()

    def leave_run(self) -> None:
        """See `SessionManager.leave_run`."""
        self._get_session_manager().leave_run()

    def fail_run(self, error: BaseException) -> None:
        """See `SessionManager.fail_run`."""
        self._get_session_manager().fail_run(error)

    def _get_session_manager(self) -> SessionManager:
        if self._session_manager is None:
            self._session_manager = SessionManager(
                local_init_op=self._scaffold.local_init_op,
                ready_op=self._scaffold.ready_op,
                ready_for_local_init_op=self._scaffold.ready_for_local_init_op,
                graph=get_default_graph(),
            )
        return self._session_manager


@export("tf.train.ChiefSessionCreator")
class ChiefSessionCreator(_ScaffoldedCreator):
    """Makes sessions for the chief: restores or initializes the model (``tf.train.ChiefSessionCreator``).

    Args:
      scaffold: the ops to initialize and restore with; default: a new scaffold.
      master: the sessions' target.
      config: the sessions' ConfigProto.
      checkpoint_dir: a directory whose latest checkpoint is restored.
      checkpoint_filename_with_path: the checkpoint to restore in place of ``checkpoint_dir``'s.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        super().__init__(scaffold, master, config)
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename_with_path = checkpoint_filename_with_path

    def create_session(self) -> Any:
        scaffold = self._scaffold.finalize()
        return self._get_session_manager().prepare_session(
            self._master,
            saver=scaffold.saver,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path,
            config=self._config,
            init_op=scaffold.init_op,
            init_feed_dict=scaffold.init_feed_dict,
            init_fn=scaffold.init_fn,
        )


@export("tf.train.WorkerSessionCreator")
class WorkerSessionCreator(_ScaffoldedCreator):
    """Makes sessions for workers: waits until the chief has made the model ready (``tf.train.WorkerSessionCreator``).

    Args:
      scaffold: the ops to check and initialize locally with; default: a new scaffold.
      master: the sessions' target.
      config: the sessions' ConfigProto.
      max_wait_secs: seconds to wait; None for no limit.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        max_wait_secs: float | None = WORKER_MAX_WAIT_S,
    ) -> None:
        super().__init__(scaffold, master, config)
        self._max_wait_secs = max_wait_secs
        self.max_recovery_s = float("inf") if max_wait_secs is None else max_wait_secs

    def create_session(self) -> Any:
        self._scaffold.finalize()
        return self._get_session_manager().wait_for_session(
            self._master, config=self._config, max_wait_secs=self._max_wait_secs
        )
