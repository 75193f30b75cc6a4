"""The messages that pages get."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from xml.etree import ElementTree

import pytest

from tests.show.dashboard.clusters import START, cluster, link, name_of, silent, task, working
from tests.show.status.hostile import NUMBERS, hostile_task
from tfmini.runtime import snapshot as s
from tfmini.show.dashboard.board import Board, Reader

SVG = "{http://www.w3.org/2000/svg}"


def filled(ps: int, workers: int, seconds: int) -> Board:
    board = Board()
    for second in range(seconds):
        board.take(working(ps, workers, START + second, steps=100 + 10 * second))
    return board


def charts(message) -> dict[str, dict]:
    return {chart["id"]: chart for chart in message["charts"]}


def lines(message) -> dict[tuple[str, str], str]:
    """(from, to) -> the tooltip of each line of the picture."""
    found = {}
    for group in ElementTree.fromstring(message["picture"]).iter(f"{SVG}g"):
        if "data-from" in group.attrib:
            found[group.attrib["data-from"], group.attrib["data-to"]] = group.findtext(f"{SVG}title", "")
    return found


def test_the_first_message_has_everything_and_the_next_one_what_is_new() -> None:
    board, reader = filled(2, 3, 5), Reader()
    first = board.message(reader)
    assert [box["id"] for box in first["boxes"]] == ["ps/0", "ps/1", "worker/0", "worker/1", "worker/2"]
    assert first["boxes"][2]["lines"] == ["10 steps/s", "memory 50 MB"]
    assert len(first["events"]) == 5
    steps = charts(first)["steps"]
    assert steps["whole"] and steps["labels"] == ["worker/0", "worker/1", "worker/2"] and len(steps["times"]) == 5
    board.take(silent(working(2, 3, START + 5, steps=150), "ps/1"))
    assert [box["state"] for box in board.message(reader)["boxes"]] == ["ok", "silent", "ok", "ok", "ok"]
    board.take(silent(working(2, 3, START + 8, steps=150), "ps/1"))
    second = board.message(reader)
    assert [event["text"] for event in second["events"]] == ["ps/1: connection refused"]
    assert charts(second)["steps"]["times"] == [START + 8] and not charts(second)["steps"]["whole"]
    assert [box["state"] for box in second["boxes"]] == ["ok", "silent", "ok", "ok", "ok"]


def test_a_rate_of_thousands_has_no_exponent() -> None:
    first = filled(1, 120, 2).message(Reader())
    assert first["boxes"][0]["lines"][0] == "1,200 parts/s"


def test_the_charts() -> None:
    found = charts(filled(2, 3, 5).message(Reader()))
    assert list(found) == ["scalar|loss", "steps", "bytes", "staleness", "memory", "cpu"]
    assert found["scalar|loss"]["labels"] == ["worker/0"] and found["scalar|loss"]["title"] == "loss"
    assert found["staleness"]["columns"][0][-1] == 1.5
    assert round(found["cpu"]["columns"][0][-1], 3) == 0.3


def test_staleness_has_a_chart_once_an_update_was_stale() -> None:
    board, reader = Board(), Reader()

    def take(second: int, newest: int) -> list[str]:
        seen = (s.StalenessSnapshot(name_of("worker/0"), second + 1, newest / (second + 1), newest, newest),)
        now = START + second
        board.take(cluster(task("ps/0", now, staleness=seen), task("worker/0", now), now=now))
        return list(charts(board.message(reader)))

    assert "staleness" not in take(0, 0) + take(1, 0)  # of synchronous updates none is
    assert "staleness" in take(2, 3)
    assert charts(board.message(Reader()))["staleness"]["labels"] == ["worker/0"]


def test_a_line_stays_when_nothing_runs_on_it_any_more() -> None:
    board = filled(1, 2, 2)
    still = [dataclasses.replace(each, links=()) for each in working(1, 2, START + 2).tasks]
    quiet = dataclasses.replace(still[0], links=tuple(link(f"worker/{j}", 10.0) for j in range(2)))
    board.take(cluster(quiet, *still[1:], now=START + 2))
    assert lines(board.message(Reader()))["ps/0", "worker/1"] == "ps/0 → worker/1: 10 B/s"
    idle = Board()
    idle.take(cluster(quiet, *still[1:]))
    assert lines(idle.message(Reader())) == {}  # heartbeats are no lines


def test_tasks_keep_their_colours_and_boxes_have_different_ones() -> None:
    board = filled(8, 8, 2)
    first = board.message(Reader())
    assert len({first["colours"][f"worker/{i}"] for i in range(8)}) == 8
    assert [box["id"] for box in first["boxes"]] == ["ps/0…7 ×8", "worker/0…7 ×8"]
    board.take(silent(working(8, 8, START + 2), "worker/3"))
    second = board.message(Reader())
    boxes = [box["colour"] for box in second["boxes"]]
    assert len(boxes) == 3 == len(set(boxes))
    assert {name: second["colours"][name] for name in first["colours"] if name != "worker/3"} == {
        name: colour for name, colour in first["colours"].items() if name != "worker/3"
    }


def test_bytes_of_collectives_have_a_chart() -> None:
    board = Board()
    for second in range(3):
        groups = tuple(s.CollectiveSnapshot(str(i), 2, second, second, second * 1000) for i in range(2))
        board.take(cluster(task("worker/0", START + second, collectives=groups), now=START + second))
    assert charts(board.message(Reader()))["collectives"]["columns"] == [[None, 2000.0, 2000.0]]


def test_a_link_that_cannot_be_made_is_told_unless_the_other_task_is_silent() -> None:
    ways = tuple(s.LinkSnapshot(name_of(f"ps/{i}"), "connecting", why="timed out") for i in range(2))
    board = Board()
    board.take(silent(cluster(task("ps/0"), task("ps/1"), task("worker/0", links=ways)), "ps/1"))
    (found,) = board.message(Reader())["broken"]
    assert found == {"from": "worker/0", "to": "ps/0", "text": "worker/0 cannot reach ps/0: timed out"}


def test_heartbeats_are_no_busiest_link() -> None:
    board = Board()
    board.take(cluster(task("ps/0", links=(link("worker/0", 900.0),)), task("worker/0")))
    assert board.message(Reader())["busiest"] is None


def test_many_lines_become_the_lowest_the_median_and_the_highest() -> None:
    board = Board()
    board.take(cluster(*(task(f"worker/{i}", steps=1, steps_s=float(i)) for i in range(11))))
    steps = charts(board.message(Reader()))["steps"]
    assert steps["labels"] == ["lowest", "median", "highest"] and steps["columns"] == [[0.0], [5.0], [10.0]]


def test_links_are_the_sums_between_boxes() -> None:
    message = filled(2, 98, 2).message(Reader())
    told = lines(message)
    assert told["ps/1", "worker/0…97 ×98"] == "ps/1 → worker/0…97 ×98: 197 MB/s on 98 links"
    assert told["worker/0…97 ×98", "ps/0"] == "worker/0…97 ×98 → ps/0: 98 MB/s on 98 links"
    assert "2.01 MB/s each" in message["picture"] and "1 MB/s    each" in message["picture"]
    assert message["busiest"] == {"from": "ps/1", "to": "worker/0", "rate": 3.015e6}


def test_the_longest_waits_and_the_ledgers() -> None:
    ps, workers = name_of("ps/0"), [name_of("worker/0"), name_of("worker/1")]
    waits = tuple(s.WaitSnapshot(str(i), "a", s.TOKEN, f"wait {i}", float(i), from_tasks=(ps,)) for i in range(30))
    sent = s.ContributionSnapshot(workers[1], 9, 2)
    ledger = s.AccumulatorSnapshot("acc", 1, 3, 7, 20, 2, (sent,), (workers[0],))
    board = Board()
    board.take(cluster(task("ps/0", accumulators=(ledger,)), task("worker/0", waits=waits)))
    message = board.message(Reader())
    assert message["waits"][0]["words"] == "waits for wait 29 for 29 s, from ps/0" and len(message["waits"]) == 12
    assert message["boxes"][1]["state"] == "waits"
    (found,) = message["ledgers"]
    assert found["contributed"] == ["worker/0"]
    assert found["tasks"] == [{"task": "worker/1", "accepted": 9, "dropped": 2}]


def test_a_tasks_details_are_bounded_and_are_json() -> None:
    variables = tuple(s.VariableSnapshot(f"v{i}", "float32", (i,), i) for i in range(5000))
    board = Board()
    board.take(cluster(task("ps/0", variables=variables, scalars=(s.ScalarSnapshot("loss", 1, math.nan, START),))))
    found = board.details(name_of("ps/0"))
    assert found is not None and found["variables"][0]["name"] == "v4999"
    assert len(found["variables"]) + found["omitted"]["variables"] == 5000
    assert json.loads(json.dumps(found, allow_nan=False))["scalars"][0]["value"] == "nan"
    assert board.details("nobody") is None


def test_a_loss_that_is_not_a_number_is_a_gap() -> None:
    board = Board()
    for second, value in enumerate((1.0, math.nan, math.inf, 2.0)):
        scalar = s.ScalarSnapshot("loss", second, value, START)
        board.take(cluster(task("worker/0", scalars=(scalar,)), now=START + second))
    message = board.message(Reader())
    json.dumps(message, allow_nan=False)
    assert charts(message)["scalar|loss"]["columns"] == [[1.0, None, None, 2.0]]


def test_a_hundred_tasks_make_small_messages() -> None:
    board, reader = filled(8, 92, 30), Reader()
    board.message(reader)
    board.take(working(8, 92, START + 31))
    began = time.thread_time()
    text = json.dumps(board.message(reader))
    assert len(text) < 20_000 and time.thread_time() - began < 1.0


def test_a_restarted_cluster_with_an_earlier_clock_is_shown_whole() -> None:
    board, reader = filled(1, 1, 5), Reader()
    board.message(reader)
    board.take(dataclasses.replace(working(1, 1, START - 100)))
    assert charts(board.message(reader))["memory"]["whole"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_task_that_tells_odd_things_does_not_keep_the_others_from_the_page(number: float) -> None:
    board, reader = Board(), Reader()
    for second in range(3):
        good = working(1, 1, START + second, steps=100 + second)
        odd = hostile_task("/job:ps/replica:0/task:7", number)
        board.take(dataclasses.replace(good, tasks=(*good.tasks, odd)))
        text = json.dumps(board.message(reader), allow_nan=False)
    shown = json.loads(text)
    assert [box["state"] for box in shown["boxes"]] == ["ok", "ok", "ok"]
    names = {box["id"] for box in shown["boxes"]}  # the page cannot draw a line to a box that is not there
    assert {end for way in lines(shown) for end in way} <= names
    assert "OWNED" in text and "\\u001b" not in text
    json.dumps(board.details(odd.task), allow_nan=False)


def test_workers_that_are_outside_their_steps_are_told_as_bound_by_their_input() -> None:
    board, opened = Board(), (s.SessionSnapshot("1", name_of("worker/0"), 9.0),)
    for second in range(6):
        workers = [task(f"worker/{i}", START + second, steps=second, sessions=opened) for i in range(2)]
        board.take(cluster(task("ps/0", START + second, parts=1), *workers, now=START + second))
    message = board.message(Reader())
    assert message["why"]["bottleneck"].startswith(
        "worker/0, worker/1 are outside Session.run 100 % of the time: input"
    )
    assert [" ".join(box["doing"]) for box in message["boxes"][1:]] == ["outside Session.run 100 % of the time"] * 2
    assert [box["mark"] for box in message["boxes"]] == ["", "", ""]
