"""Asking tasks in processes of their own."""

from __future__ import annotations

import pytest

from tests.polling import poll
from tfmini.runtime.snapshot import STUCK, TaskSnapshot
from tfmini.show.status.explanation import explain
from tfmini.show.status.gather import Gatherer
from tfmini.testing import ProcessCluster

# A server whose loop has one thread, the background thread, and that thread is in a handler for ever.
_STUCK = """
import json, sys, threading
import tfmini as tf
from tfmini.rpc.reactor import get_reactor
server = tf.train.Server(json.loads(sys.argv[1]), job_name=sys.argv[2], task_index=int(sys.argv[3]))
begun = threading.Event()
def handler_that_hangs():
    begun.set()
    threading.Event().wait()
get_reactor().call_soon(handler_that_hangs)
begun.wait()
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.mark.cluster
def test_a_task_whose_handlers_are_all_stuck_answers_and_says_where_it_is() -> None:
    with ProcessCluster(ps=1, workers=0, program=_STUCK) as cluster:
        cluster.wait_ready("ps", 0)
        with Gatherer(cluster.target("ps", 0)) as gatherer:

            def stuck() -> TaskSnapshot | None:
                task = gatherer.gather(timeout_s=60, stacks=True).tasks[0]
                return task if task.state == STUCK else None

            task = poll(stuck, "a snapshot of the stuck task")
            found = gatherer.gather(timeout_s=60)
    assert "no thread has been free to handle messages" in task.why
    assert any("handler_that_hangs" in frame for thread in task.stacks for frame in thread.frames)
    assert found.took_s < 60 and explain(found).cycles == ()
