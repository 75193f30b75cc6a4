"""Logs as JSON."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from tfmini import json_log, library_log
from tfmini.launch.output import JsonConsole, OutputLines


def test_the_library_logs_objects_with_level_task_and_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"task": {"type": "worker", "index": 2}}))
    monkeypatch.setenv(json_log.LOG_JSON_ENV, "1")
    assert library_log.library_logger() is logging.getLogger("tensorflow")
    library_log.library_logger()  # adds no second handler
    logging.getLogger("tensorflow").warning("step %d\nof %s", 3, "it")
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("tfmini.rpc").exception("failed")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["message"], first["level"], first["logger"], first["task"]) == (
        "step 3\nof it", "WARNING", "tensorflow", "worker/2",
    )  # fmt: skip
    assert first["time"].endswith("+00:00") and first["pid"] > 0 and "exception" not in first
    assert second["logger"] == "tfmini.rpc" and "ValueError: odd" in second["exception"]


def test_without_a_cluster_there_is_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    for config in ("", "{", "[]", '{"task": {"type": "ps"}}'):
        monkeypatch.setenv("TF_CONFIG", config)
        record = logging.makeLogRecord({"msg": "m", "levelname": "INFO", "name": "n"})
        assert json.loads(json_log.JsonFormatter().format(record))["task"] == ""


class Lines:
    """A sink in memory."""

    broken = False

    def __init__(self) -> None:
        self.data = b""
        self.line_of: object | None = None

    def write(self, data: bytes, line_of: object | None = None) -> None:
        self.data += data
        self.line_of = line_of


def test_what_a_task_prints_becomes_an_object_and_what_it_logs_stays_one() -> None:
    sink = Lines()
    output = OutputLines(b"[worker/0] ", sink, "worker/0")  # type: ignore[arg-type]
    logged = json_log.json_line("from the library", "worker/0", level="WARNING")
    output.feed(b"loss 0.5 \xff\n" + logged.encode() + b'\n{"time": broken\n')
    found = [json.loads(line) for line in sink.data.splitlines()]
    assert [(each["task"], each["level"], each["message"]) for each in found] == [
        ("worker/0", "INFO", "loss 0.5 \ufffd"), ("worker/0", "WARNING", "from the library"),
        ("worker/0", "INFO", '{"time": broken'),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ['{"time": not json}', '{"time": "x"}', '{"time": NaN, "level": "x", "message": "m"}', '{"time": "x"} {"a": "b"}',
     '{"time": "x", "level": "INFO", "message": 7}', '{"time": "x", "level": "INFO", "message": "m", "more": 1}',
     '{"time": "x", "level": "INFO", "message": "m", "pid": true}', '{"time": ' + "[" * 5000 + "]" * 5000 + "}",
     '{"time": "x", "level": "INFO", "message": "m", "pid": ' + "9" * 5000 + "}",
     '{"time": \x1b[2J}', '{"time": \udcff}'],
)  # fmt: skip
def test_a_line_that_only_looks_like_json_becomes_the_message_of_its_task(line: str) -> None:
    sink = Lines()
    data = line.encode(errors="surrogateescape")
    OutputLines(b"", sink, "worker/0").feed(data + b"\n")  # type: ignore[arg-type]
    (only,) = sink.data.splitlines()
    found = json.loads(only, parse_constant=pytest.fail)
    assert (found["task"], found["level"]) == ("worker/0", "INFO")
    assert found["message"] == data.decode(errors="replace")


def test_a_task_cannot_log_in_the_name_of_another() -> None:
    sink = Lines()
    line = json_log.json_line("forged", "ps/0", level="CRITICAL")
    OutputLines(b"", sink, "worker/0").feed(line.encode() + b"\n")  # type: ignore[arg-type]
    found = json.loads(sink.data)
    assert (found["task"], found["level"], found["message"]) == ("worker/0", "CRITICAL", "forged")


def test_the_launchers_own_messages(capsys: pytest.CaptureFixture[str]) -> None:
    JsonConsole().log("worker/0 failed", level="ERROR", task="worker/0", exit_code=137)
    print(file=sys.stderr, end="", flush=True)
    found = json.loads(capsys.readouterr().err)
    assert (found["logger"], found["message"]) == ("tfmini.launch", "worker/0 failed")
    assert (found["level"], found["task"], found["exit_code"]) == ("ERROR", "worker/0", 137)
