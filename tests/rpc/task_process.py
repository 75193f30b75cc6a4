"""A task in a process of its own, for tests that kill it: ``task_process.py ADDRESS INCARNATION``."""

from __future__ import annotations

import sys

from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter


def main() -> None:
    address, incarnation = sys.argv[1], int(sys.argv[2])
    endpoint = Endpoint(get_reactor(), "/job:ps/replica:0/task:0", incarnation)
    endpoint.serve(
        {
            m.GetStatus: lambda peer, request, respond: respond(
                m.GetStatusReply(endpoint.task, incarnation, [])
            ),
            m.RunGraph: lambda peer, request, respond: respond(m.RunGraphReply(request.feed_values, b"")),
            m.CleanupGraph: lambda peer, request, respond: None,  # never answers
        }
    )
    print(endpoint.listen(address), flush=True)
    get_reactor().drive(Waiter(), get_reactor().now() + 60)


if __name__ == "__main__":
    main()
