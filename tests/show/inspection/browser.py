"""Headless Chromium for tests, driven over a pipe by its own DevTools protocol: no driver and no port are needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SWITCHES = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
             "--disable-features=IsolateSandboxedIframes", "--disable-dev-shm-usage", "--disable-background-networking",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--window-size=1280,800",
             "--force-device-scale-factor=1")  # fmt: skip
_DEADLINE_S = 100.0


def find_browser() -> str | None:
    """The path of a Chromium: TFMINI_CHROMIUM, else one on the PATH."""
    named = os.environ.get("TFMINI_CHROMIUM")
    return named or next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One page of a browser that reaches no network but this machine's own address 127.0.0.1.

    Raises:
      RuntimeError: the browser ends or does not answer, or a script on the page throws.
    """

    def __init__(self, path: str, profile: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()  # written by this process, written by the browser
        # The browser reads descriptor 3 and writes descriptor 4.
        switches = " ".join(f"'{switch}'" for switch in (*_SWITCHES, f"--user-data-dir={profile}"))
        command = f"exec '{path}' {switches} 3<&{ours[0]} 4>&{theirs[1]}"
        self._process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=(ours[0], theirs[1]), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._write, self._read = ours[1], theirs[0]
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda event: event.get("id") == self._number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def open(self, path: Path) -> None:
        """Opens a file and waits until it has loaded."""
        self.go(path.as_uri())

    def go(self, url: str) -> None:
        """Opens an address and waits until it has loaded."""
        loader = self.call("Page.navigate", url=url)["loaderId"]

        def has_loaded(event: dict[str, Any]) -> bool:
            about = event.get("params", {})
            is_ours = event.get("method") == "Page.lifecycleEvent" and about["loaderId"] == loader  # not the one before
            return is_ours and about["name"] == "load"

        self._until(has_loaded)

    def innermost(self) -> tuple[int, int]:
        """(a context for `run` in the innermost frame of the page, the number of frames around it)."""
        tree, depth = self.call("Page.getFrameTree")["frameTree"], 0
        while tree.get("childFrames"):
            tree, depth = tree["childFrames"][0], depth + 1
        made = self.call("Page.createIsolatedWorld", frameId=tree["frame"]["id"])
        return int(made["executionContextId"]), depth

    def run(self, script: str, context: int | None = None) -> Any:
        """The value of a JavaScript expression, or the result of its promise."""
        where = {} if context is None else {"contextId": context}
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, **where)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def click(self, x: float, y: float, times: int = 1) -> None:
        """Clicks as a mouse does."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)

    def type(self, text: str) -> None:
        """Types into the focused element, then Enter."""
        self.call("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            self.call("Input.dispatchKeyEvent", type=kind, **key)

    def screenshot(self) -> bytes:
        """The page as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """Ends the browser."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def _until(self, wanted: Any) -> dict[str, Any]:
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            while b"\0" in self._buffer:
                text, _, self._buffer = self._buffer.partition(b"\0")
                event = json.loads(text)
                if event.get("method") == "Network.requestWillBeSent":
                    self.requests.append(event["params"]["request"]["url"])
                if wanted(event):
                    return dict(event)
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise RuntimeError("the browser does not answer")
            data = os.read(self._read, 1 << 16)
            if not data:
                raise RuntimeError("the browser has ended")
            self._buffer += data


MEETINGS = """(() => {
  const place = document.querySelector('svg.picture'), told = [];
  const all = (kinds) => [...place.querySelectorAll(kinds)].filter((n) => !n.closest('.legend'));
  const area = (n) => { const r = n.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
  const meet = ([a, b, c, d], [e, f, g, h]) => a < g - 1 && e < c - 1 && b < h - 1 && f < d - 1;
  const labels = all('.label').map((n) => [n.textContent, area(n)]);
  const closed = all('.box > rect:first-of-type, .op > rect, .scope > rect');
  const boxes = closed.map((n) => [n.parentElement.dataset.id, area(n)]);
  labels.forEach(([one, a], i) => {
    for (const [two, b] of labels.slice(i + 1)) if (meet(a, b)) told.push([one, two]);
  });
  for (const [one, a] of labels) for (const [two, b] of boxes) if (meet(a, b)) told.push([one, two]);
  for (const line of all('.wire .line, .order .line')) {
    const { from, to } = line.parentElement.dataset, there = line.getScreenCTM(), long = line.getTotalLength();
    const others = boxes.filter(([id]) => id !== from && id !== to);
    for (let at = 0; at <= long; at += 2) {
      const p = line.getPointAtLength(at).matrixTransform(there), dot = [p.x - 1.1, p.y - 1.1, p.x + 1.1, p.y + 1.1];
      for (const [id, b] of others) if (meet(dot, b)) told.push([from, to, id]);
    }
  }
  for (const text of all('.box text, .op text, .scope text')) {
    const [a, , c] = area(text), [e, , g] = area(text.parentElement.querySelector('rect'));
    if (a < e - 1 || c > g + 1) told.push(['too wide', text.textContent]);
  }
  return told;
})()"""
"""A script: which labels of the page's picture meet, which lines pass a box of others, which texts leave their box."""

PASSED = """(() => {
  const told = [], lean = { includeLabels: false, includeEdges: false, includeOverlays: false };
  const boxes = cy.nodes(':childless').map((n) => [n.id(), n.boundingBox(lean)]);
  for (const edge of cy.edges().toArray()) {
    const points = [edge.sourceEndpoint(), ...(edge.segmentPoints() || []), edge.targetEndpoint()];
    points.slice(1).forEach((b, i) => {
      const order = (k) => [points[i][k], b[k]].sort((one, two) => one - two), [x, X] = order('x'), [y, Y] = order('y');
      if (X - x > 0.1 && Y - y > 0.1) told.push([edge.id(), 'is not at right angles']);
      const meets = (box) => x < box.x2 - 4 && X > box.x1 + 4 && y < box.y2 - 4 && Y > box.y1 + 4;  // borders count
      for (const [id, box] of boxes) if (meets(box)) told.push([edge.id(), id]);
    });
  }
  return told;
})()"""
"""A script: which lines among all ops are not at right angles, or pass a box."""
