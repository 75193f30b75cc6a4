"""The requests of a launcher to an API server of Kubernetes, by the package kubernetes. All of them block."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from tfmini.engines.manifest import Object
from tfmini.tools.engine import EngineError

_GROUP, _VERSION, _PLURAL = "jobset.x-k8s.io", "v1alpha2", "jobsets"
_OF_SET = "jobset.sigs.k8s.io/jobset-name"
_LIMIT_S = (5, 30)  # of a request: to connect, and to be answered
_SILENT_S = 3600  # after which a connection that reads output is made anew
_NOT_FOUND = 404


class ApiError(Exception):
    """The API server has refused a request, or does not answer. ``status`` is that of HTTP; 0: no answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class KubernetesCluster:
    """The cluster of the user's current context, or the one in which this process is a pod.

    Args:
      namespace: of all objects; "": that of the context.

    Raises:
      EngineError: the package or the configuration is missing.
    """

    def __init__(self, namespace: str = "") -> None:
        try:
            self._client: Any = importlib.import_module("kubernetes.client")
            self._urllib3: Any = importlib.import_module("urllib3")
        except ImportError:
            raise EngineError(
                "--on kubernetes needs the package kubernetes: pip install 'tfmini[kubernetes]'."
            ) from None
        self.namespace = namespace or _configure()
        self._core = self._client.CoreV1Api()
        self._custom = self._client.CustomObjectsApi()

    def create(self, found: Object) -> None:
        """Creates a JobSet or a Secret."""
        if found["kind"] == "Secret":
            self._ask(self._core.create_namespaced_secret, self.namespace, found)
        else:
            self._ask(self._custom.create_namespaced_custom_object, _GROUP, _VERSION, self.namespace, _PLURAL, found)

    def jobset(self, name: str) -> Object:
        """A JobSet; {} if there is none."""
        try:
            found = self._ask(
                self._custom.get_namespaced_custom_object, _GROUP, _VERSION, self.namespace, _PLURAL, name
            )
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return {}
            raise
        return dict(json.loads(found.data))

    def pods(self, name: str) -> list[Object]:
        """The pods of a JobSet."""
        answer = self._ask(self._core.list_namespaced_pod, self.namespace, label_selector=f"{_OF_SET}={name}")
        return list(json.loads(answer.data)["items"])

    def delete(self, found: Object) -> None:
        """Deletes a JobSet, whose pods get SIGTERM, or a Secret. What is gone already is no error."""
        name = found["metadata"]["name"]
        if found["kind"] == "Secret":
            self._delete(self._core.delete_namespaced_secret, name, self.namespace)
        else:
            self._delete(
                self._custom.delete_namespaced_custom_object, _GROUP, _VERSION, self.namespace, _PLURAL, name,
                propagation_policy="Background",
            )  # fmt: skip

    def kill(self, pods: Sequence[str], grace_s: int) -> None:
        """Deletes pods, which get SIGKILL after so many seconds."""
        for pod in pods:
            self._delete(self._core.delete_namespaced_pod, pod, self.namespace, grace_period_seconds=grace_s)

    def log(self, pod: str, since: str) -> Iterator[tuple[str, bytes]]:
        """(timestamp, line) of what a container writes, until it ends or the connection does.

        Args:
          since: leave out what is not behind this timestamp.
        """
        answer = self._ask(
            self._core.read_namespaced_pod_log, pod, self.namespace, follow=True, timestamps=True,
            _request_timeout=(_LIMIT_S[0], _SILENT_S),
        )  # fmt: skip
        partial = b""
        try:
            for data in answer.stream(65536):
                *lines, partial = (partial + data).split(b"\n")
                for line in lines:
                    if (found := _stamped(line))[0] > since:
                        yield found
            if partial and (found := _stamped(partial))[0] > since:
                yield found
        except self._urllib3.exceptions.HTTPError as error:
            raise ApiError(f"{type(error).__name__}: {error}") from None
        finally:
            answer.release_conn()

    def _delete(self, request: Any, *arguments: Any, **options: Any) -> None:
        try:
            self._ask(request, *arguments, **options)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise

    def _ask(self, request: Any, *arguments: Any, **options: Any) -> Any:
        """The answer as it came: the package has types of its own for some answers, which servers do not keep to."""
        try:
            answer = request(*arguments, **{"_request_timeout": _LIMIT_S, "_preload_content": False, **options})
            if answer.status >= 300:  # not every version of the package raises an error then
                raise ApiError(f"{answer.status} {answer.reason}: {_message(answer.data)}", answer.status)
            if not options.get("follow"):
                answer.read(cache_content=True)  # frees the connection
            return answer
        except self._client.ApiException as error:
            raise ApiError(f"{error.status} {error.reason}: {_message(error.body)}", int(error.status or 0)) from None
        except self._urllib3.exceptions.HTTPError as error:
            raise ApiError(f"{type(error).__name__}: {error}") from None


def _stamped(line: bytes) -> tuple[str, bytes]:
    stamp, _, text = line.partition(b" ")
    return stamp.decode(errors="replace"), text + b"\n"


def _configure() -> str:
    """Reads the user's configuration, or that of a pod; returns the namespace that it names."""
    config = importlib.import_module("kubernetes.config")
    try:
        config.load_kube_config()
        return str(config.list_kube_config_contexts()[1]["context"].get("namespace") or "default")
    except config.ConfigException as missing:
        try:
            config.load_incluster_config()
            with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
                return file.read().strip()
        except (config.ConfigException, OSError):
            raise EngineError(
                f"There is no configuration of Kubernetes ({missing}). Name one by KUBECONFIG; try `kubectl get pods`."
            ) from None


def _message(body: Any) -> str:
    """What the API server says of a refused request."""
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return (body.decode(errors="replace") if isinstance(body, bytes) else str(body or "")).strip()[:200]


def create_all(cluster: KubernetesCluster, objects: Sequence[Object]) -> None:
    """Creates objects in their order, or none of them.

    Raises:
      EngineError: the API server refuses.
    """
    made: list[Object] = []
    try:
        for found in objects:
            cluster.create(found)
            made.append(found)
    except ApiError as error:
        with contextlib.suppress(ApiError):
            for other in made:
                cluster.delete(other)
        raise EngineError(_explained(error, found["kind"], cluster.namespace)) from None


def _explained(error: ApiError, kind: str, namespace: str) -> str:
    remedy = {
        0: "Is this the right context? Try `kubectl get pods`.",
        401: "Log in again, or choose another context.",
        403: f"You may not create a {kind} in the namespace {namespace}.",
        _NOT_FOUND: f"Is there a namespace {namespace}? Is the JobSet controller installed (https://jobset.sigs.k8s.io)?",
    }.get(error.status, "")
    return f"Kubernetes does not take the {kind}: {error}. {remedy}".strip()
