"""The worker's methods as answers to messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.rpc import messages as m
from tfmini.runtime.session_owners import SessionOwners
from tfmini.runtime.wait_reports import describe_run
from tfmini.runtime.worker import Worker


def worker_handlers(worker: Worker, owners: SessionOwners) -> dict[type[Any], Callable[..., Any]]:
    """Message kind -> handler, for `Endpoint.serve`."""
    service = _WorkerService(worker, owners)
    return {
        m.GetStatus: service.get_status,
        m.CreateWorkerSession: service.create_worker_session,
        m.DeleteWorkerSession: service.delete_worker_session,
        m.RegisterGraph: service.register_graph,
        m.DeregisterGraph: service.deregister_graph,
        m.RunGraph: service.run_graph,
        m.CleanupGraph: service.cleanup_graph,
        m.CleanupAll: service.cleanup_all,
        m.Logging: service.logging,
        m.DescribeStep: service.describe_step,
        m.SendTensors: service.send_tensors,
        m.AbortStep: service.abort_step,
        m.CollectiveJoin: service.collective_join,
        m.CollectiveData: service.collective_data,
        m.CollectiveProbe: service.collective_probe,
        m.CollectiveStage: service.collective_stage,
        m.CollectiveBell: service.collective_bell,
        m.CollectiveFailure: service.collective_failure,
    }


class _WorkerService:
    def __init__(self, worker: Worker, owners: SessionOwners) -> None:
        self.worker = worker
        self._owners = owners

    def get_status(self, peer: Any, request: m.GetStatus, respond: Any) -> None:
        devices = [[d.name, d.device_type, d.memory_limit, d.incarnation] for d in self.worker.devices]
        respond(m.GetStatusReply(self.worker.task, self.worker.incarnation, devices))

    def create_worker_session(self, peer: Any, request: m.CreateWorkerSession, respond: Any) -> None:
        self.worker.create_session(request.session_handle, request.isolate, request.tasks, request.task)
        handle = request.session_handle
        self._owners.adopt(handle, peer, lambda why: self.worker.delete_session(handle))
        respond(m.CreateWorkerSessionReply())

    def delete_worker_session(self, peer: Any, request: m.DeleteWorkerSession, respond: Any) -> None:
        self._owners.release(request.session_handle)
        self.worker.delete_session(request.session_handle)
        respond(m.DeleteWorkerSessionReply())

    def register_graph(self, peer: Any, request: m.RegisterGraph, respond: Any) -> None:
        try:
            nodes = [Node.from_wire(fields) for fields in request.graph]
            graph = self.worker.register_graph(request.session_handle, nodes, request.options)
        except errors.OpError as error:
            respond(error)
            return
        respond(m.RegisterGraphReply(graph.handle))

    def deregister_graph(self, peer: Any, request: m.DeregisterGraph, respond: Any) -> None:
        self.worker.deregister_graph(request.graph_handle)
        respond(m.DeregisterGraphReply())

    def run_graph(self, peer: Any, request: m.RunGraph, respond: Any) -> None:
        def done(error: errors.OpError | None, values: list[Any]) -> None:
            respond(error if error is not None else m.RunGraphReply(tuple(values), b""))

        try:
            graph = self.worker.graph(request.graph_handle)
            run = self.worker.run_graph(graph, request.step_id, request.feed_values, done)
        except errors.OpError as error:
            self.worker.forget_step(request.step_id)
            respond(error)
            return
        if respond.is_open:
            gone = errors.CancelledError(None, None, f"The master of step {request.step_id} gave up.", derived=True)
            respond.on_cancel(lambda: self.worker.abort_step(run.step_id, gone))

    def cleanup_graph(self, peer: Any, request: m.CleanupGraph, respond: Any) -> None:
        error = errors.AbortedError(None, None, f"Cleanup {request.step_id}", derived=True)
        self.worker.abort_step(request.step_id, error)
        respond(m.CleanupGraphReply())

    def cleanup_all(self, peer: Any, request: m.CleanupAll, respond: Any) -> None:
        self.worker.cleanup_all(request.containers)
        respond(m.CleanupAllReply())

    def logging(self, peer: Any, request: m.Logging, respond: Any) -> None:
        if not request.step_id:
            respond(m.LoggingReply(time.time_ns(), b""))
        elif not self.worker.run_in_pool(self._report, request.step_id, respond):
            respond(errors.CancelledError(None, None, f"{self.worker.task} is shutting down."))

    def _report(self, step_id: int, respond: Any) -> None:
        """Many ops make much to report: this is not for the thread that owns the sockets."""
        try:
            respond(m.LoggingReply(time.time_ns(), self.worker.step_stats(step_id)))
        except Exception as error:  # noqa: BLE001 - in a pool it would be lost, and the master wait for ever
            text = f"step {step_id} cannot be reported: {type(error).__name__}: {error}"
            respond(errors.InternalError(None, None, text))

    def describe_step(self, peer: Any, request: m.DescribeStep, respond: Any) -> None:
        respond(m.DescribeStepReply(describe_run(self.worker.steps.get(request.step_id))))

    def send_tensors(self, peer: Any, request: m.SendTensors, respond: Any) -> None:
        self.worker.receive(request.step_id, request.group, request.values, request.dead, request.iteration)

    def abort_step(self, peer: Any, request: m.AbortStep, respond: Any) -> None:
        self.worker.abort_step(request.step_id, m.error_of(request))

    def collective_join(self, peer: Any, request: m.CollectiveJoin, respond: Any) -> None:
        self.worker.collectives.leader.join(
            request.group_key, request.group_size, request.device, request.place, respond
        )

    def collective_data(self, peer: Any, request: m.CollectiveData, respond: Any) -> None:
        self.worker.collectives.receive(request)

    def collective_probe(self, peer: Any, request: m.CollectiveProbe, respond: Any) -> None:
        self.worker.collectives.probed(request)

    def collective_failure(self, peer: Any, request: m.CollectiveFailure, respond: Any) -> None:
        self.worker.collectives.failed(request.epoch, m.error_of(request))

    def collective_stage(self, peer: Any, request: m.CollectiveStage, respond: Any) -> None:
        self.worker.collectives.receive(request)

    def collective_bell(self, peer: Any, request: m.CollectiveBell, respond: Any) -> None:
        self.worker.collectives.rung(request)
