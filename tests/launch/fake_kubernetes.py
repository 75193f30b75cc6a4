"""A small API server of our own, with what we know of JobSet's controller and of kubelets; no Kubernetes.

It speaks the few paths that the launcher uses. A pod is a process of this machine that runs the container's arguments
with its variables; its address is a port of the loopback interface in place of the JobSet's name. What this shows is
that the launcher does what we think is right for a cluster that does what we think it does.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).parents[2]
NAMESPACE = "ml"
_JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
_CORE = f"/api/v1/namespaces/{NAMESPACE}"
_LIMIT_S = 60.0
_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: fake
clusters: [{{name: fake, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
contexts: [{{name: fake, context: {{cluster: fake, user: fake, namespace: {namespace}}}}}]
users: [{{name: fake, user: {{token: fake}}}}]
"""


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass
class _Pod:
    name: str
    job: str
    index: int
    attempt: int
    process: subprocess.Popen[bytes] | None
    lines: list[tuple[str, bytes]] = field(default_factory=list)
    code: int | None = None
    finished: str = ""
    deleted: bool = False

    def object(self) -> dict[str, Any]:
        """What the API server tells of it."""
        labels = {
            "jobset.sigs.k8s.io/replicatedjob-name": self.job,
            "batch.kubernetes.io/job-completion-index": str(self.index),
            "jobset.sigs.k8s.io/restart-attempt": str(self.attempt),
        }
        metadata = {"name": self.name, "labels": labels}
        if self.process is None:
            why = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/3 nodes are available",
            }
            return {"metadata": metadata, "spec": {}, "status": {"phase": "Pending", "conditions": [why]}}
        state: dict[str, Any] = {"running": {}}
        if self.code is not None:
            state = {"terminated": {"exitCode": self.code, "finishedAt": self.finished}}
        status = {"phase": "Running", "containerStatuses": [{"state": state}]}
        return {"metadata": metadata, "spec": {"nodeName": "node"}, "status": status}


class FakeCluster:
    """See the module. `refuse` maps the method and the last part of a path to (status, message).

    Attributes:
      full: no pod finds a node.
      cut_logs: so many connections that read output are cut after the first line.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refuse: dict[tuple[str, str], tuple[int, str]] = {}
        self.full, self.cut_logs = False, 0
        self.secrets: dict[str, Any] = {}
        self.jobsets: dict[str, Any] = {}
        self.pods: dict[str, _Pod] = {}
        self.changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"cluster": self}))
        self._server.daemon_threads = True
        self._run(self._server.serve_forever)
        self.config = folder / "kubeconfig"
        self.config.write_text(_KUBECONFIG.format(port=self._server.server_port, namespace=NAMESPACE))

    def close(self) -> None:
        with self.changed:
            for pod in self.pods.values():
                self._signal(pod, signal.SIGKILL)
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join(_LIMIT_S)

    def _run(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    # ---------------------------------------------------------------- the controller

    def create_jobset(self, found: dict[str, Any]) -> None:
        """Starts its pods."""
        self.jobsets[found["metadata"]["name"]] = {**found, "status": {"restarts": 0}}
        self._start(found, 0)

    def _start(self, found: dict[str, Any], attempt: int) -> None:
        jobs = found["spec"]["replicatedJobs"]
        hosts: dict[str, list[str]] = {}
        with contextlib.ExitStack() as held:
            for job in jobs:
                for _ in range(job["template"]["spec"]["completions"]):
                    listener = held.enter_context(socket.create_server(("127.0.0.1", 0)))
                    hosts.setdefault(job["name"], []).append(f"127.0.0.1:{listener.getsockname()[1]}")
        for job in jobs:
            for index in range(job["template"]["spec"]["completions"]):
                self._start_pod(found, job, index, attempt, hosts)

    def _start_pod(
        self, found: dict[str, Any], job: dict[str, Any], index: int, attempt: int, hosts: dict[str, list[str]]
    ) -> None:
        name = f"{found['metadata']['name']}-{job['name']}-0-{index}-{attempt}"
        container = job["template"]["spec"]["template"]["spec"]["containers"][0]
        variables = {each["name"]: each["value"] for each in container["env"]}
        variables |= {"TFMINI_CLUSTER": json.dumps(hosts), "JOB_COMPLETION_INDEX": str(index)}
        (secret,) = self.secrets.values()
        key = self.folder / "tfmini.key_secret"
        key.touch(0o600)
        key.write_bytes(base64.b64decode(secret["data"]["tfmini.key_secret"]))
        variables["TFMINI_KEYS"] = str(key)
        process = None
        if not self.full:
            process = subprocess.Popen(
                [sys.executable, "-m", "tfmini", *container["args"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        pod = self.pods[name] = _Pod(name, job["name"], index, attempt, process)
        if process is not None:
            self._run(self._watch, found["metadata"]["name"], pod)

    def _watch(self, jobset: str, pod: _Pod) -> None:
        """The kubelet of a pod, and what the controller does at its end."""
        assert pod.process is not None and pod.process.stdout is not None
        for line in pod.process.stdout:
            with self.changed:
                # As from a kubelet: no two lines have the same time.
                pod.lines.append((f"{_now()[:-1]}.{len(pod.lines):09d}Z", line))
                self.changed.notify_all()
        code = pod.process.wait()
        pod.process.stdout.close()
        with self.changed:
            pod.code, pod.finished = (code if code >= 0 else 128 - code), _now()
            if pod.deleted:
                self.pods.pop(pod.name, None)
            elif jobset in self.jobsets:
                self._decide(self.jobsets[jobset], pod)
            self._let_services_end()
            self.changed.notify_all()

    def _decide(self, found: dict[str, Any], pod: _Pod) -> None:
        pods = [each for each in self.pods.values() if each.attempt == pod.attempt]
        if pod.code:
            for other in pods:
                self._delete_unless_ended(other)
            if pod.attempt < found["spec"]["failurePolicy"]["maxRestarts"]:
                self._start(found, pod.attempt + 1)
            else:
                found["status"]["conditions"] = [{"type": "Failed", "status": "True"}]
        elif all(each.code == 0 for each in pods if each.job != "ps"):
            found["status"]["conditions"] = [{"type": "Completed", "status": "True"}]
            for other in pods:
                self._delete_unless_ended(other)

    def _delete_unless_ended(self, pod: _Pod) -> None:
        if pod.code is None:
            self.delete_pod(pod.name, None)

    def delete_jobset(self, name: str) -> None:
        """Its pods are told to end, all at once."""
        self.jobsets.pop(name)
        for pod in list(self.pods.values()):
            self.delete_pod(pod.name, None)

    def delete_pod(self, name: str, grace_s: int | None) -> None:
        """SIGTERM, which a ps gets after its preStop hook: here when all workers have ended; or SIGKILL at once."""
        pod = self.pods[name]
        pod.deleted = True
        if pod.code is not None or pod.process is None:
            del self.pods[name]
        elif grace_s is not None:
            self._signal(pod, signal.SIGTERM if grace_s else signal.SIGKILL)
        elif pod.job != "ps":
            self._signal(pod, signal.SIGTERM)

    def _let_services_end(self) -> None:
        if all(pod.code is not None for pod in self.pods.values() if pod.job != "ps"):
            for pod in self.pods.values():
                if pod.deleted and pod.code is None:
                    self._signal(pod, signal.SIGTERM)

    def _signal(self, pod: _Pod, signum: int) -> None:
        if pod.process is not None:
            pod.process.send_signal(signum)

    # ---------------------------------------------------------------- output

    def log(self, name: str) -> Iterator[bytes]:
        """The lines of a pod with their times, and b"" when it has ended; without that if the connection is cut."""
        pod, sent = self.pods[name], 0
        cut, self.cut_logs = self.cut_logs > 0, max(0, self.cut_logs - 1)
        while True:
            with self.changed:
                while len(pod.lines) == sent and pod.code is None:
                    self.changed.wait(_LIMIT_S)
                lines, sent = pod.lines[sent:], len(pod.lines)
            if not lines:
                yield b""
                return
            for stamp, line in lines:
                yield f"{stamp} ".encode() + line
                if cut:
                    return


class _Handler(BaseHTTPRequestHandler):
    cluster: FakeCluster
    protocol_version = "HTTP/1.1"  # output comes in chunks

    def log_message(self, *_: Any) -> None:
        pass

    def _refused(self) -> bool:
        found = self.cluster.refuse.get((self.command, urlsplit(self.path).path.rpartition("/")[2]))
        if found is not None:
            self._answer({"kind": "Status", "message": found[1]}, found[0])
        return found is not None

    def _answer(self, found: Any, status: int = 200) -> None:
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._refused():
            return
        with self.cluster.changed:
            if self.path == f"{_CORE}/secrets":
                self.cluster.secrets[found["metadata"]["name"]] = found
            else:
                assert self.path == _JOBSETS
                self.cluster.create_jobset(found)
        self._answer(found, 201)

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if self._refused():
            return
        if path.endswith("/log"):
            self._stream(path.split("/")[-2])
            return
        name = path.rpartition("/")[2]
        with self.cluster.changed:
            if path == f"{_CORE}/pods":
                self._answer({"items": [pod.object() for pod in self.cluster.pods.values()]})
            elif name in self.cluster.jobsets:
                self._answer(self.cluster.jobsets[name])
            else:
                self._answer({"message": f"{name} not found"}, 404)

    def _stream(self, pod: str) -> None:
        if pod not in self.cluster.pods:
            self._answer({"message": f"{pod} not found"}, 404)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            for line in self.cluster.log(pod):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                if not line:
                    return
        self.close_connection = True  # cut

    def do_DELETE(self) -> None:
        path = urlsplit(self.path)
        name = path.path.rpartition("/")[2]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self._refused():
            return
        with self.cluster.changed:
            kind = path.path.split("/")[-2]
            there: dict[str, Any] = getattr(self.cluster, kind)
            if name not in there:
                self._answer({"message": f"{name} not found"}, 404)
                return
            if kind == "jobsets":
                self.cluster.delete_jobset(name)
            elif kind == "pods":
                self.cluster.delete_pod(name, int(parse_qs(path.query)["gracePeriodSeconds"][0]))
            else:
                del there[name]
        self._answer({"kind": "Status", "status": "Success"})
