"""A step that waits for its plan ends at its deadline; the plan is for later steps."""

from __future__ import annotations

import pytest

import tfmini as tf
from tfmini.runtime.master.master_session import late_plan
from tfmini.testing import ProcessCluster


def test_the_deadline_names_what_is_missing() -> None:
    text = late_plan(5.0, "the session waits for /job:ps/task:0").message
    assert "did not begin within 5 s, since the session waits for /job:ps/task:0. If the tasks" in text
    assert "since its plan is being made." in late_plan(5.0, "").message


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_step_whose_task_is_not_up_ends_at_its_deadline(is_remote: bool) -> None:
    """From the master's own process, and from another one."""
    cluster = ProcessCluster(ps=1, workers=2, local=("worker", 0))
    try:
        cluster.start_task("worker", 1)
        cluster.start_local()
        with tf.device("/job:ps/task:0"):  # which is never started
            result = tf.constant(1.0) + tf.placeholder_with_default(1.0, [])
        target = cluster.target("worker", 1) if is_remote else cluster.server.target
        with tf.Session(target) as session:
            session.run(tf.no_op())  # opens the session, which is no part of the limit
            with pytest.raises(tf.errors.DeadlineExceededError) as info:
                session.run(result, options=tf.RunOptions(timeout_in_ms=700))
        for part in ("did not begin within 0.7 s", "/job:ps/replica:0/task:0", cluster.spec.task_address("ps", 0)):
            assert part in str(info.value)
    finally:
        cluster.stop()
