"""The text of a step whose time is over."""

from __future__ import annotations

import re

import pytest

import tfmini as tf

PS, WORKER = "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"
ELEMENT = f'{PS} waits for an element of FIFOQueue "queue" (0 of 1 elements) (node element).'
REMEDY = (
    "If the step needs longer, raise timeout_in_ms of its RunOptions, or operation_timeout_in_ms of the session's"
    " ConfigProto (of a ParameterStore: timeout_s)."
)


@pytest.mark.parametrize("on_worker, waits", [
    (False, ELEMENT),
    (True, f"{ELEMENT} {WORKER} waits for element from {PS}."),
])  # fmt: skip
def test_a_deadline_names_the_tasks_and_their_waits(on_worker: bool, waits: str) -> None:
    workers, servers = tf.test.create_local_cluster(num_workers=1, num_ps=1)
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(1, tf.float32, [[]], shared_name="queue")
        first, fetched = queue.enqueue(0.0), queue.dequeue(name="element")
    if on_worker:
        with tf.device("/job:worker/task:0"):
            fetched = fetched + 1.0
    wrong = pytest.raises(tf.errors.DeadlineExceededError)
    with workers[0], servers[0], tf.Session(workers[0].target) as session, wrong as caught:
        session.run(first)
        session.run(fetched)  # a step of a known graph begins at once, on a busy machine too
        session.run(fetched, options=tf.RunOptions(timeout_in_ms=1000))
    text = re.sub(r"step \d+", "step N", caught.value.message)
    assert text == f"Timed out waiting for notification: step N did not end within 1 s. {waits} {REMEDY}"
