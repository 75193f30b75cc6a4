"""Roles and addresses under MPI launchers, without one."""

from __future__ import annotations

import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from tfmini.launch.engine import EngineError, EngineOptions
from tfmini.launch.members import SharedDirectory
from tfmini.launch.mpi import MpiBroadcast, PmiExchange, exchange_of, member_of_launcher, mpirun_options


@pytest.mark.parametrize("variables", [
    {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_RANK": "3"},
    {"PMI_RANK": "3", "PMI_SIZE": "8"},
    {"PMIX_RANK": "3", "SLURM_STEP_NUM_TASKS": "8"},
])  # fmt: skip
def test_each_launcher_tells_rank_and_size(variables: dict[str, str]) -> None:
    member = member_of_launcher(variables)
    assert (member.rank, member.size, member.workers(2, None)) == (3, 8, 6)


@pytest.mark.parametrize("variables, missing", [({}, "OMPI_COMM_WORLD_RANK"), ({"PMIX_RANK": "0"}, "PMI_SIZE")])
def test_other_processes_are_refused(variables: dict[str, str], missing: str) -> None:
    with pytest.raises(EngineError, match=f"No known MPI launcher has started this process .*{missing}"):
        member_of_launcher(variables)


def test_open_mpi_is_told_which_variable_to_hand_on() -> None:
    options = EngineOptions(pack=False, arguments=("--oversubscribe",))
    assert mpirun_options(3, options, is_open_mpi=True) == [
        *("-np", "3", "-x", "TFMINI_AGENT", "--map-by", "node", "--oversubscribe"),
    ]
    assert mpirun_options(3, options, is_open_mpi=False) == ["-np", "3", "--oversubscribe"]


def test_without_mpi4py_and_pmi_a_directory_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    assert isinstance(exchange_of({"PMIX_NAMESPACE": "7"}, 2), SharedDirectory)


class Manager:
    """The launcher's side of PMI 1 for several ranks, each on a socket."""

    def __init__(self, connections: list[socket.socket]) -> None:
        self.space: dict[str, str] = {}
        self.barrier = threading.Barrier(len(connections))
        self.threads = [threading.Thread(target=self.serve, args=[connection]) for connection in connections]
        for thread in self.threads:
            thread.start()

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb", buffering=0) as file:
            for line in file:
                request = dict(word.partition("=")[::2] for word in line.decode().split())
                answer = self.answer(request)
                file.write(answer.encode() + b"\n")
                if request["cmd"] == "finalize":
                    return

    def answer(self, request: dict[str, str]) -> str:
        match request["cmd"]:
            case "get_my_kvsname":
                return "cmd=my_kvsname kvsname=kvs_1"
            case "put":
                self.space[request["key"]] = request["value"]
                return "cmd=put_result rc=0 msg=success"
            case "get":
                return f"cmd=get_result rc=0 msg=success value={self.space[request['key']]}"
            case "barrier_in":
                self.barrier.wait(60)
                return "cmd=barrier_out"
        return f"cmd={request['cmd']}_ack rc=0"


def test_pmi_carries_the_word_from_rank_0_to_the_others() -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    manager = Manager([theirs for theirs, _ in pairs])
    ranks = [PmiExchange(ours.detach(), rank) for rank, (_, ours) in enumerate(pairs)]
    found: list[str] = []
    others = [threading.Thread(target=lambda rank=rank: found.append(rank.receive())) for rank in ranks[1:]]
    for thread in others:
        thread.start()
    ranks[0].publish("word")
    for thread in [*others, *manager.threads]:
        thread.join(60)
    assert found == ["word", "word"] and ranks[1].receive() == "word"


def test_a_launcher_that_refuses_is_quoted() -> None:
    theirs, ours = socket.socketpair()
    with theirs:
        theirs.sendall(b"cmd=response_to_init rc=-1\n")
        with pytest.raises(EngineError, match="does not answer 'cmd=init' as PMI 1 says: 'cmd=response_to_init rc=-1'"):
            PmiExchange(ours.detach(), 0).publish("word")


def test_mpi4py_broadcasts_once_and_finalizes() -> None:
    calls: list[object] = []
    world = SimpleNamespace(Get_size=lambda: 2, bcast=lambda word, root: calls.append(word) or "word")
    exchange = MpiBroadcast(SimpleNamespace(COMM_WORLD=world, Finalize=lambda: calls.append("finalize")))
    assert (exchange.size, exchange.receive(), exchange.receive()) == (2, "word", "word")
    assert calls == ["", "finalize"]
