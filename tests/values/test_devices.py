"""Device names: the request grammar, merging, the core grammar, and agreement with TensorFlow."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tfmini as tf
from tests.oracle import Oracle
from tests.values import oracle_devices
from tests.values.oracle_devices import answer, described
from tfmini.cluster import ClusterSpec
from tfmini.devices import (
    DeviceSpec,
    DeviceSpecV2,
    ParsedDevice,
    canonical_name,
    device_name,
    intersects,
    matches,
    merge_device,
    merge_function,
    parse,
)
from tfmini.protos import NodeDef

T = TypeVar("T")

# ---------------------------------------------------------------- DeviceSpec


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("//", ""),
        ("job:ps", "/job:ps"),
        ("/job:ps/", "/job:ps"),
        ("/cpu:0/task:1/job:w", "/job:w/task:1/device:CPU:0"),
        ("/job:w/replica:0/task:3/device:GPU:2", "/job:w/replica:0/task:3/device:GPU:2"),
        ("/cpu", "/device:CPU:*"),
        ("/GpU:*", "/device:GPU:*"),
        ("/device:gpu:0", "/device:GPU:0"),
        ("/device:Cpu:0", "/device:Cpu:0"),
        ("/device:XLA_CPU:*", "/device:XLA_CPU:*"),
        ("/job:*", "/job:*"),
        ("/job:my-job.x", "/job:my-job.x"),
        ("/job:a/job:b", "/job:b"),
    ],
)
def test_requests_are_parsed(text: str, canonical: str) -> None:
    assert canonical_name(text) == canonical
    assert DeviceSpec.from_string(text).to_string() == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/foo:1", "Unknown attribute: 'foo' in '/foo:1'"),
        ("/device:CPU", "Unknown attribute: 'device' in '/device:CPU'"),
        ("/job:ps:1", "Unknown attribute: 'job' in '/job:ps:1'"),
        ("/cpu:0:1", "Unknown attribute: 'cpu' in '/cpu:0:1'"),
        ("/cpu:0/device:GPU:1", "Cannot specify multiple device types: /cpu:0/device:GPU:1"),
        ("/task:*", "invalid literal for int"),
        ("/replica:x", "invalid literal for int"),
        ("/cpu:x", "invalid literal for int"),
    ],
)
def test_malformed_requests_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("*", r"\*")):
        canonical_name(text)


def test_the_constructor_coerces_its_arguments() -> None:
    assert DeviceSpec(job=3, task="7").to_string() == "/job:3/task:7"  # type: ignore[arg-type]
    assert DeviceSpec(device_type="gpu", device_index=1).to_string() == "/device:GPU:1"
    assert DeviceSpec(device_index=1).to_string() == ""


def test_properties_are_settable_and_coerce() -> None:
    spec = DeviceSpec.from_string("/job:a/cpu:0")
    spec.job, spec.replica, spec.task, spec.device_type, spec.device_index = "b", "0", 2, "gpu", None
    assert spec.to_string() == "/job:b/replica:0/task:2/device:GPU:*"
    assert (spec.job, spec.replica, spec.task) == ("b", 0, 2)
    assert (spec.device_type, spec.device_index) == ("GPU", None)


def test_mutators_change_and_replace_copies() -> None:
    spec = DeviceSpec.from_string("/job:a/task:1")
    other = DeviceSpec.from_string("/task:2/cpu:0")
    assert spec.make_merged_spec(other).to_string() == "/job:a/task:2/device:CPU:0"
    assert spec.replace(task=None, job="z").to_string() == "/job:z"
    assert spec.to_string() == "/job:a/task:1"
    assert spec.parse_from_string("/job:q") is spec
    spec.merge_from(other)
    assert spec.to_string() == "/job:q/task:2/device:CPU:0"
    with pytest.raises(TypeError, match="device"):
        spec.replace(device="CPU")


def test_equality_and_hash_go_by_text() -> None:
    assert DeviceSpec(device_index=3) == DeviceSpec()
    assert len({DeviceSpec.from_string("/cpu:0"), DeviceSpec(device_type="CPU", device_index=0)}) == 1
    assert DeviceSpec(job="a") != "/job:a"
    assert repr(DeviceSpec(job="a", task=1)) == (
        "<DeviceSpec(job=a, replica=None, task=1, device_type=None, device_index=None)>"
    )


# ---------------------------------------------------------------- helpers for device scopes


def test_canonical_name_accepts_specs_and_none() -> None:
    assert canonical_name(None) == ""
    assert canonical_name(DeviceSpec(job="a")) == "/job:a"
    with pytest.raises(TypeError, match="got int: 3"):
        canonical_name(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outer", "inner", "result"),
    [
        ("/job:a/task:1", "/task:2", "/job:a/task:2"),
        ("", "/cpu:0", "/device:CPU:0"),
        ("/gpu:1", "/cpu", "/device:CPU:1"),
        ("/gpu:1", "/device:GPU:*", "/device:GPU:1"),
        ("/job:a", "/job:*", "/job:*"),
    ],
)
def test_requests_are_merged(outer: str, inner: str, result: str) -> None:
    assert merge_device(outer, inner) == result
    assert merge_function(outer)(NodeDef(device=inner)) == result


def test_merge_function_takes_a_snapshot() -> None:
    spec = DeviceSpec(job="a")
    merge = merge_function(spec)
    spec.job = "b"
    assert merge(NodeDef(device="/cpu:0")) == "/job:a/device:CPU:0"
    with pytest.raises(ValueError, match="Unknown attribute"):
        merge_function("/nonsense")


# ---------------------------------------------------------------- the core grammar


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("", ParsedDevice()),
        ("/", ParsedDevice()),
        ("/job:w/replica:0/task:3/device:CPU:1", ParsedDevice("w", 0, 3, "CPU", 1)),
        ("/device:CPU:1/job:w", ParsedDevice("w", None, None, "CPU", 1)),
        ("/job:*/replica:*/task:*/device:*:*", ParsedDevice()),
        ("/device:*:2", ParsedDevice(device_index=2)),
        ("/device:GPU", ParsedDevice(device_type="GPU")),
        ("/device:gpu:0", ParsedDevice(device_type="gpu", device_index=0)),
        ("/cpu:0", ParsedDevice(device_type="CPU", device_index=0)),
        ("/GPU:*", ParsedDevice(device_type="GPU")),
        ("/job:a/job:b/task:1/task:*", ParsedDevice(job="b")),
        ("/task:007", ParsedDevice(task=7)),
    ],
)
def test_full_names_are_parsed(text: str, parsed: ParsedDevice) -> None:
    assert parse(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "job:a",
        "/cpu",
        "/Cpu:0",
        "/job:",
        "/job:my-job",
        "/job:9a",
        "/job:é",
        "/job:a/",
        "/job:a:b",
        "/task:-1",
        "/task:x",
        "/task:1x",
        "/task:",
        "/task:99999999999",
        "/task:" + "9" * 5000,
        "/device:CPU:",
        "/device:",
        "/device:CPU:0\n",
        "//",
    ],
)
def test_malformed_full_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="^Malformed device specification '") as error:
        parse(text)
    assert text in str(error.value)


def test_a_parsed_device_has_its_parts() -> None:
    full = parse(device_name("worker", 3))
    assert full.to_string() == "/job:worker/replica:0/task:3/device:CPU:0"
    assert full.is_full
    assert (full.task_name, full.local_name) == ("/job:worker/replica:0/task:3", "CPU:0")
    assert not parse("/job:a").is_full
    assert (parse("/job:a").local_name, parse("/cpu:*").local_name) == ("", "CPU:*")
    assert parse("/task:1").completed_by(full) == parse(device_name("worker", 1))


def test_devices_match_and_intersect() -> None:
    full = parse("/job:ps/replica:0/task:1/device:CPU:0")
    assert matches(parse("/job:ps"), full)
    assert matches(parse(""), full)
    assert not matches(parse("/job:ps/task:0"), full)
    assert not matches(full, parse("/job:ps"))
    assert intersects(parse("/job:ps"), parse("/task:1"))
    assert not intersects(parse("/job:ps"), parse("/job:worker/task:1"))


# ---------------------------------------------------------------- properties


names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,3}", fullmatch=True)
numbers = st.integers(0, 9)
devices = st.builds(
    ParsedDevice, st.none() | names, st.none() | numbers, st.none() | numbers, names, st.none() | numbers
)


@given(devices)
def test_a_full_name_is_parsed_as_it_was_written(device: ParsedDevice) -> None:
    assert parse(device.to_string()) == device


@given(devices, devices, devices)
def test_merging_is_associative_and_idempotent(a: ParsedDevice, b: ParsedDevice, c: ParsedDevice) -> None:
    x, y, z = (canonical_name(device.to_string()) for device in (a, b, c))
    assert merge_device(x, merge_device(y, z)) == merge_device(merge_device(x, y), z)
    assert merge_device(x, x) == x
    assert merge_device("", x) == merge_device(x, "") == x


@given(devices, devices)
def test_matching_devices_intersect(a: ParsedDevice, b: ParsedDevice) -> None:
    assert intersects(a, b) == intersects(b, a)
    assert not matches(a, b) or intersects(a, b)
    assert matches(a, a.completed_by(b))


# ---------------------------------------------------------------- agreement with TensorFlow

_words = st.sampled_from(
    [
        "job",
        "replica",
        "task",
        "device",
        "cpu",
        "GPU",
        "gPu",
        "CPU",
        "foo",
        "*",
        "0",
        "1",
        "-2",
        "1_0",
        " 3",
        "x",
        "",
    ]
)
_pieces = st.lists(_words, min_size=1, max_size=3).map(":".join)
_good_pieces = st.one_of(
    st.builds("job:{}".format, st.sampled_from(["ps", "a-b", "3", "*"])),
    st.builds("{}:{}".format, st.sampled_from(["replica", "task"]), st.integers(0, 12)),
    st.builds("device:{}:{}".format, st.sampled_from(["cpu", "gpu", "Cpu", "TPU"]), st.sampled_from(["0", "7", "*"])),
    st.sampled_from(["cpu:0", "GPU:1", "cpu", "gpu:*", ""]),
)
_specs = st.lists(_good_pieces, max_size=4).map("/".join) | st.lists(_good_pieces | _pieces, max_size=5).map("/".join)
_addresses = st.sampled_from(["a:1", "b:22", "localhost:0", ""])
_clusters = st.dictionaries(
    st.sampled_from(["ps", "worker", "chief", "z"]),
    st.lists(_addresses, max_size=3) | st.dictionaries(st.integers(0, 4), _addresses, max_size=3),
    max_size=3,
)


def _generated(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Examples in one batch, so that TensorFlow is started once for all of them."""
    found: list[T] = []

    @settings(
        max_examples=count,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found


@pytest.mark.oracle
def test_tensorflow_agrees(oracle: Oracle) -> None:
    asked: dict[str, list[Any]] = {
        "specs": _generated(_specs, 600),
        "merges": _generated(st.tuples(_specs, _specs), 400),
        "clusters": _generated(_clusters, 100),
    }
    theirs = oracle.call(oracle_devices.answers, asked)
    for spec, found in zip(asked["specs"], theirs["specs"], strict=True):
        assert answer(canonical_name, spec) == found, spec
    for pair, found in zip(asked["merges"], theirs["merges"], strict=True):
        assert answer(lambda p: merge_device(*p), pair) == found, pair
    for jobs, found in zip(asked["clusters"], theirs["clusters"], strict=True):
        assert answer(lambda j: described(ClusterSpec(j)), jobs) == found, jobs


def test_a_spec_of_version_2_does_not_change() -> None:
    spec = DeviceSpecV2(job="ps")
    with pytest.raises(AttributeError):
        spec.job = "worker"
    assert not hasattr(spec, "merge_from")
    assert spec.parse_from_string("/task:1").to_string() == "/task:1" and spec.to_string() == "/job:ps"
    assert type(spec.make_merged_spec(DeviceSpec(task=2))) is type(spec.replace(task=2)) is DeviceSpecV2


def test_a_spec_of_version_1_changes_and_is_one_of_version_2() -> None:
    spec = DeviceSpec(job="ps")
    spec.task = 3
    assert spec.parse_from_string("/task:1") is spec and (spec.job, spec.task) == (None, 1)
    spec.merge_from(DeviceSpecV2(job="worker"))
    assert spec.to_string() == "/job:worker/task:1"
    assert type(spec.make_merged_spec(DeviceSpecV2(task=2))) is type(spec.replace(task=2)) is DeviceSpec
    assert isinstance(spec, DeviceSpecV2) and DeviceSpecV2(task=3) == DeviceSpecV2(task=3) != DeviceSpecV2(task=4)
    with tf.device(DeviceSpecV2(job="ps")):
        assert tf.no_op().device == "/job:ps"
