"""The page's web server: it reads the cluster once per interval and sends what changed to every open page.

Starlette and uvicorn (the extra ``dashboard``). Every address needs the token, as ``?token=`` or as a bearer. Nothing
here changes the cluster; a traced step runs as it would have run.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import json
import resource
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tfmini import errors, protos
from tfmini.runtime.snapshot import ClusterSnapshot
from tfmini.show.dashboard.board import Board, Reader, finite
from tfmini.show.inspection.pages import assembled, timeline, trace_page
from tfmini.show.inspection.trace import StepTrace
from tfmini.show.status.explanation import CONTENT_TYPE
from tfmini.text import printable

STRANGERS, STRANGER_S = 256, 8.0  # connections without the token, and for how long each: as of a server's listener
_BACKLOG = 128  # connections that are accepted at once, before those too many are ended
_READERS = 32  # open pages
_ADMIT = "tfmini.admit"  # of a request's scope: to be called when it has the token
_LONGEST = 1000  # characters of an error
_GRACE_S = 2  # for answers that are being written when the server ends
_RETRY_MS = 1000  # after which a page whose connection broke asks again
_GONE = "This timeline is not kept any more; trace another step.\n"
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class ClusterReader:
    """What the server asks of the cluster. Each function may block, and raises an OpError when it cannot answer.

    Attributes:
      gather: takes a snapshot.
      metrics: the snapshot in Prometheus's format. None: not possible.
      trace: traces a step of the task with that full name; returns a serialized StepStats. None: not possible.
    """

    gather: Callable[[], ClusterSnapshot]
    metrics: Callable[[ClusterSnapshot], str] | None = None
    trace: Callable[[str], bytes] | None = None


class _Gate:
    """Refuses what comes without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = request.query_params.get("token", "") or bearer
        if secrets.compare_digest(given.encode(), self._token):
            scope.get(_ADMIT, lambda: None)()
            await self._app(scope, receive, send)
            return
        text = "This page needs the token of the address that the command has printed: open the whole address.\n"
        await PlainTextResponse(text, 403, _HEADERS | {"Connection": "close"})(scope, receive, send)


class Strangers:
    """The connections that have not shown the token yet: so many at most, and each for a bounded time.

    Every user of this machine can open connections to the page. Beyond the limit the oldest one is ended, so a browser
    with the token, which asks at once, is always let in.
    """

    def __init__(self, most: int = STRANGERS, limit_s: float = STRANGER_S) -> None:
        self._most, self.limit_s = most, limit_s
        self._waiting: dict[_Connection, None] = {}  # the oldest first

    def add(self, connection: _Connection) -> None:
        """Counts a new connection; ends the oldest ones beyond the limit."""
        while len(self._waiting) >= self._most:
            next(iter(self._waiting)).cut()
        self._waiting[connection] = None

    def remove(self, connection: _Connection) -> None:
        """Counts a connection no more."""
        self._waiting.pop(connection, None)


class _Connection(H11Protocol):
    """One connection, which is cut if it does not show the token in time."""

    def __init__(self, *args: Any, strangers: Strangers, **options: Any) -> None:
        super().__init__(*args, **options)
        self._strangers = strangers
        self._deadline: asyncio.TimerHandle | None = None
        inner = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await inner({**scope, _ADMIT: self.admit}, receive, send)

        self.app = app

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._strangers.add(self)
        self._deadline = self.loop.call_later(self._strangers.limit_s, self.cut)

    def connection_lost(self, exc: Exception | None) -> None:
        self.admit()
        super().connection_lost(exc)

    def admit(self) -> None:
        """It has shown the token, or has ended."""
        self._strangers.remove(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def cut(self) -> None:
        """Ends it, whatever it has sent so far."""
        self.admit()
        self.transport.abort()


class Dashboard:
    """The web application of one cluster.

    Args:
      source: reads the cluster.
      token: what every request must have.
      interval_s: seconds between two snapshots.
    """

    def __init__(self, source: ClusterReader, token: str, interval_s: float = 1.0) -> None:
        self.board = Board()
        self._source = source
        self._interval_s = interval_s
        self._changed = asyncio.Event()
        self._readers = 0
        self._tracing = asyncio.Lock()
        self._timelines = Timelines()
        self._closing = False
        routes = [
            Route("/", self._page), Route("/updates", self._updates), Route("/task", self._task),
            Route("/metrics", self._metrics), Route("/trace", self._trace, methods=["POST"]),
            Route("/timeline", self._timeline), Route("/timeline.json", self._timeline_file),
        ]  # fmt: skip
        self.application = Starlette(routes=routes, lifespan=self._life, middleware=[Middleware(_Gate, token=token)])

    @contextlib.asynccontextmanager
    async def _life(self, application: Starlette) -> AsyncIterator[None]:
        reading = asyncio.create_task(self._read())
        try:
            yield
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    async def _read(self) -> None:
        while True:
            try:
                self.board.take(await run_in_threadpool(self._source.gather))
            except errors.OpError as error:
                self.board.problem = error.message
            except Exception as error:  # noqa: BLE001 - the page must say why it stands still
                self.board.problem = f"{type(error).__name__}: {printable(error, _LONGEST)}"
            self._wake()
            await asyncio.sleep(self._interval_s)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def close(self) -> None:
        """Ends the connections of open pages, which would keep the server from ending. For the server's thread."""
        self._closing = True
        self._wake()

    async def _page(self, request: Request) -> Response:
        return _document(page())

    async def _updates(self, request: Request) -> Response:
        if self._readers >= _READERS:
            return PlainTextResponse(f"{_READERS} pages are open already; close one.\n", 503, _HEADERS)
        return StreamingResponse(self._messages(), media_type="text/event-stream", headers=_HEADERS)

    async def _messages(self) -> AsyncIterator[str]:
        """Server-sent events; the browser connects again by itself, and its first message then has everything."""
        self._readers += 1
        reader = Reader()
        try:
            yield f"retry: {_RETRY_MS}\n\n"
            while not self._closing:
                changed = self._changed
                if self.board.number or self.board.problem:
                    yield f"data: {_json(self._message(reader))}\n\n"
                await changed.wait()
        finally:
            self._readers -= 1

    def _message(self, reader: Reader) -> dict[str, Any]:
        try:
            return self.board.message(reader)
        except Exception as error:  # noqa: BLE001 - the page must say why it stands still
            return {"number": self.board.number, "problem": f"{type(error).__name__}: {printable(error, _LONGEST)}"}

    async def _task(self, request: Request) -> Response:
        found = self.board.details(request.query_params.get("name", ""))
        if found is None:
            return JSONResponse({"problem": "The cluster has no such task any more."}, 404, _HEADERS)
        return Response(_json(found), media_type="application/json", headers=_HEADERS)

    async def _metrics(self, request: Request) -> Response:
        if self._source.metrics is None:
            return PlainTextResponse("There are no metrics.\n", 501, _HEADERS)
        cluster = self.board.cluster
        if cluster is None:
            return PlainTextResponse(f"No snapshot yet. {self.board.problem}\n", 503, _HEADERS)
        text = self._source.metrics(cluster)
        return Response(text, media_type=CONTENT_TYPE, headers=_HEADERS)

    async def _trace(self, request: Request) -> Response:
        if self._source.trace is None:
            return JSONResponse({"problem": "This cluster cannot be traced."}, 501, _HEADERS)
        if self._tracing.locked():
            return JSONResponse({"problem": "Another step is being traced."}, 409, _HEADERS)
        async with self._tracing:
            try:
                stats = await run_in_threadpool(self._source.trace, request.query_params.get("name", ""))
                name = await run_in_threadpool(self._timelines.add, stats)
            except errors.OpError as error:
                return JSONResponse({"problem": error.message}, 409, _HEADERS)
            except Exception as error:  # noqa: BLE001 - what the tasks have recorded cannot be drawn
                problem = f"The recorded step cannot be shown: {type(error).__name__}: {printable(error, _LONGEST)}"
                return JSONResponse({"problem": problem}, 409, _HEADERS)
        found = self._timelines.get(name)
        return JSONResponse({"timeline": name, "about": found.about if found else ""}, headers=_HEADERS)

    async def _timeline(self, request: Request) -> Response:
        found = self._timelines.get(request.query_params.get("id", ""))
        return _document(found.page, is_frame=True) if found else PlainTextResponse(_GONE, 404, _HEADERS)

    async def _timeline_file(self, request: Request) -> Response:
        found = self._timelines.get(request.query_params.get("id", ""))
        if found is None:
            return PlainTextResponse(_GONE, 404, _HEADERS)
        headers = _HEADERS | {"Content-Disposition": 'attachment; filename="timeline.json"'}
        return Response(found.events, media_type="application/json", headers=headers)


def _document(text: str, is_frame: bool = False) -> Response:
    """A page whose own scripts and styles alone may run; ``is_frame``: it is a part of another page of this server."""
    nonce = secrets.token_urlsafe(16)
    for tag in ("script", "style"):
        text = text.replace(f"<{tag}>", f'<{tag} nonce="{nonce}">')
    ancestors, framing = ("'self'", "SAMEORIGIN") if is_frame else ("'none'", "DENY")
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src-elem 'nonce-{nonce}'; "
        "style-src-attr 'unsafe-inline'; connect-src 'self'; img-src data:; frame-src 'self'; "
        f"base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
    )
    return HTMLResponse(text, headers=_HEADERS | {"X-Frame-Options": framing, "Content-Security-Policy": policy})


def _room() -> int:
    """How many strangers may be connected, where the process may open few files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return STRANGERS if files == resource.RLIM_INFINITY else max(8, min(STRANGERS, files // 4))


class PageServer(uvicorn.Server):
    """Serves a dashboard: ``PageServer(dashboard).run(sockets=[listener])`` returns after a signal or `stop`."""

    def __init__(self, dashboard: Dashboard, strangers: Strangers | None = None) -> None:
        counted = strangers or Strangers(_room())
        # The access log would show the token.
        super().__init__(
            uvicorn.Config(
                dashboard.application, access_log=False, timeout_graceful_shutdown=_GRACE_S, server_header=False,
                log_level="error",  # warnings are about requests without the token, of which there may be many
                backlog=_BACKLOG, ws="none", http=functools.partial(_Connection, strangers=counted),  # type: ignore[arg-type]
            )
        )  # fmt: skip
        self._dashboard = dashboard

    def stop(self) -> None:
        """Ends `run`, from any thread."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._dashboard.close()
        await super().shutdown(sockets)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # one number of one task must not keep the others from the page
        return json.dumps(finite(value), separators=(",", ":"), allow_nan=False)


# ---- The page as one document, with all that it needs; the charts are drawn by uPlot ---------------

_SCRIPTS = ("picture.js", "dashboard:words.js", "dashboard:charts.js", "dashboard:panel.js", "dashboard:page.js")
_LIBRARIES = ("dashboard:LICENSES.txt", "dashboard:uPlot.iife.min.js")
_STYLES = ("dashboard:uPlot.min.css", "dashboard:dashboard.css")


@functools.cache
def page() -> str:
    """The page's text."""
    return assembled("dashboard:dashboard.html", _SCRIPTS, _LIBRARIES, _STYLES)


# ---- The timelines of the steps that were traced last, each as a page and as a file for Perfetto -------------------

_KEPT = 8


@dataclass(frozen=True)
class TracedTimeline:
    """``page``: HTML that loads nothing; ``events``: JSON in Chrome's trace format; ``about``: a line on the step."""

    page: str
    events: str
    about: str


class Timelines:
    """The timelines that were added last, by a random name. `add` takes long for many ops; it may run in a thread."""

    def __init__(self) -> None:
        self._kept: collections.OrderedDict[str, TracedTimeline] = collections.OrderedDict()

    def add(self, stats: bytes) -> str:
        """Keeps the timeline of a serialized StepStats; returns its name."""
        trace = StepTrace.of(protos.StepStats.FromString(stats))
        about = f"{trace.duration / 1000:.2f} ms, {len(trace.spans):,} spans"
        name = secrets.token_urlsafe(8)
        self._kept[name] = TracedTimeline(trace_page(trace), timeline(trace), about)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return name

    def get(self, name: str) -> TracedTimeline | None:
        """The timeline of that name, if it is kept."""
        return self._kept.get(name)
