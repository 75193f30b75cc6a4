"""The formats that tfmini reads: valid files of each, how they are damaged, and what reads them."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import click
import numpy as np
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from PIL import Image

import tfmini as tf
from tests.fuzz import damage, kernel_cases
from tests.fuzz.damage import Files
from tests.ops.samples import notation
from tests.ops.samples.builders import builder
from tfmini import dtypes, errors, protos
from tfmini.checkpoint.reader import Slice
from tfmini.checkpoint.writer import BundleWriter
from tfmini.cluster import ClusterSpec, cluster_from_tf_config
from tfmini.compat.hparams import HParams
from tfmini.graph.op_types import kernel_for
from tfmini.json_log import JsonFormatter
from tfmini.launch.invitation import Invitation, parse_invitation
from tfmini.ops.flow.tensor_lists import TensorList
from tfmini.ops.io.checkpoint_ops import V1Reader, V1Writer, open_checkpoint, stored_variants
from tfmini.ops.io.record_files import frame, read_records
from tfmini.placement.device_setter import plan
from tfmini.rpc.addresses import AddressBook
from tfmini.show.inspection.api import difference
from tfmini.show.inspection.clusters import read_cluster
from tfmini.show.inspection.trace import read_trace
from tfmini.show.simulation.profile import ProfileError, read_profile
from tfmini.tools.launch import horovodrun
from tfmini.train.cluster_resolver import TFConfigClusterResolver, expand_host_list, expand_tasks_per_node

# What a reader may raise beside the classes of its own.
CLEAN = (
    errors.DataLossError,
    errors.InvalidArgumentError,
    errors.NotFoundError,
    errors.UnimplementedError,
    errors.FailedPreconditionError,
    errors.OutOfRangeError,
    errors.PermissionDeniedError,
    errors.ResourceExhaustedError,
)


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
      name: of the format.
      seeds: valid inputs; an input is one file or several.
      damages: each makes a damaged input of a valid one.
      read: reads the files in a folder, in every way that there is.
      allowed: the clean errors of this format that are not TensorFlow's.
      weight: how often it comes, beside others: more for formats of many parts.
    """

    name: str
    seeds: Sequence[Files]
    damages: list[Callable[[random.Random, Files], Files]]
    read: Callable[[Path], Any]
    allowed: tuple[type[Exception], ...] = ()
    weight: int = 1

    def damaged(self, pick: random.Random) -> Files:
        """A damaged input; rarely a valid one."""
        found = pick.choice(self.seeds)
        for _ in range(pick.choice((0, 1, 1, 1, 1, 1, 1, 2))):
            try:
                found = pick.choice(self.damages)(pick, found)
            except (ValueError, IndexError, KeyError, struct.error, zlib.error, DecodeError, RecursionError):
                found = _flipped(pick, found)  # the first damage has left nothing that the second could change
        return found


def _flipped(pick: random.Random, files: Files) -> Files:
    name = pick.choice(sorted(files))
    return {**files, name: damage.flipped(pick, files[name])}


def _each(change: Callable[[random.Random, bytes], bytes]) -> Callable[[random.Random, Files], Files]:
    """Applies a change to one of the files."""

    def apply(pick: random.Random, files: Files) -> Files:
        name = pick.choice(sorted(files))
        return {**files, name: change(pick, files[name])}

    return apply


def _message(kind: Any) -> Callable[[random.Random, Files], Files]:
    return _each(lambda pick, data: damage.changed(pick, kind, data))


def _as_text(kind: Any) -> Callable[[random.Random, Files], Files]:
    """The text form of a changed message, itself damaged."""

    def apply(pick: random.Random, data: bytes) -> bytes:
        found = kind.FromString(data)
        damage.message(pick, found)
        text = text_format.MessageToString(found).encode()
        return damage.text(pick, text) if pick.random() < 0.6 else text

    return _each(apply)


def _files_in(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _all_of(*readings: Callable[[], Any], allowed: tuple[type[Exception], ...]) -> None:
    """Runs all readings: a clean error of one does not keep the others from their turn."""
    for reading in readings:
        try:
            reading()
        except Exception as error:  # noqa: BLE001
            if type(error) not in (*CLEAN, *allowed) or isinstance(error.__cause__, MemoryError):
                raise


def formats(folder: Path) -> list[Format]:
    """All formats; their valid files are written to ``folder``."""
    folder.mkdir(parents=True)
    return [*_checkpoints(folder), *_graphs(folder), *_records(), *_images(), *_rows(), *_configurations(folder)]


# ---- checkpoints --------------------------------------------------------------------------------

_VALUES: dict[str, Any] = {
    "w": np.arange(24, dtype=np.float32).reshape(4, 6),
    "n": np.int64(7),
    "s": np.array([b"a", b"", b"xyz"], object),
    "e": np.zeros((0, 3), np.float32),
    "b": np.array([True, False]),
}


def _write(writer: Any, whole: bool) -> None:
    with writer:
        for name, value in _VALUES.items():
            writer.add(name, value, dtypes.as_dtype(np.asarray(value).dtype))
        if not whole:
            for start in range(0, 8, 2):
                part = Slice(((start, 2), (0, -1)))
                writer.add_slice("p", (8, 3), part, np.full((2, 3), start, np.float32), dtypes.float32)
        writer.finish()


def _checkpoints(folder: Path) -> Iterator[Format]:
    for whole in (True, False):
        (folder / f"v2{whole}").mkdir()
        (folder / f"v1{whole}").mkdir()
        _write(BundleWriter(str(folder / f"v2{whole}" / "ckpt")), whole)
        _write(V1Writer(str(folder / f"v1{whole}" / "ckpt")), whole)
    index, data = "ckpt.index", "ckpt.data-00000-of-00001"
    kind = lambda key: protos.BundleEntryProto if key else protos.BundleHeaderProto  # noqa: E731

    def right_sums(pick: random.Random, files: Files) -> Files:
        return damage.with_checksums({**files, data: damage.flipped(pick, files[data])}, index, data)

    yield Format(
        "checkpoint",
        [_files_in(folder / "v2True"), _files_in(folder / "v2False")],
        [_flipped, right_sums, *3 * [lambda pick, f: {**f, index: damage.table(pick, f[index], kind)}]],
        _read_checkpoint,
        weight=4,
    )
    yield Format(
        "V1 checkpoint",
        [_files_in(folder / "v1True"), _files_in(folder / "v1False")],
        [_flipped, *3 * [_each(lambda pick, d: damage.table(pick, d, lambda _: protos.SavedTensorSlices))]],
        _read_v1,
        weight=3,
    )
    state = protos.CheckpointState(model_checkpoint_path="ckpt-2", all_model_checkpoint_paths=["ckpt-1", "ckpt-2"])
    text = {"checkpoint": text_format.MessageToString(state).encode()}
    lists = [_list_of_tensors(tf.float32, [[1.0, 2.0], None]), _list_of_tensors(tf.string, [[b"a", b"bc"], [b""]])]
    yield Format("list of tensors", lists, [_flipped, _message(protos.VariantTensorDataProto)], _read_list)
    yield Format("state file", [text], [_each(damage.text)], _read_state, (ValueError,))


def _read_checkpoint(place: Path) -> None:
    reader = tf.train.NewCheckpointReader(str(place / "ckpt"))
    part = Slice(((1, 4), (0, 2)))
    entries = open_checkpoint(str(place / "ckpt"))
    reads = [lambda name=name: reader.get_tensor(name) for name in [*entries.names(), "w", "p"]]
    pieces = [lambda name=name: entries.read_slice(name, part) for name in ("w", "p")]
    _all_of(reader.debug_string, reader.get_variable_to_shape_map, *reads, *pieces, allowed=())


def _read_v1(place: Path) -> None:
    reader = V1Reader.matching(str(place / "ckpt"))
    assert reader is not None
    part = Slice(((1, 4), (0, 2)))
    reads = [lambda name=name: reader.read(name) for name in reader.names()]
    pieces = [lambda name=name: reader.read_slice(name, part) for name in ("w", "p")]
    _all_of(reader.stored, *reads, *pieces, allowed=())


def _list_of_tensors(dtype: Any, elements: list[Any]) -> Files:
    values = [None if one is None else np.array(one, dtype.numpy) for one in elements]
    return {"list": TensorList(values, dtype, (None,)).message().SerializeToString()}


def _read_list(place: Path) -> None:
    messages = np.array([(place / "list").read_bytes()], object)
    stored_variants(messages, "ckpt", "list")


def _read_state(place: Path) -> None:
    tf.train.latest_checkpoint(str(place))


# ---- graphs -------------------------------------------------------------------------------------


def _example_graph(ps: str = "") -> tf.Graph:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], name="x")
        w = tf.get_variable("w", [4, 3], initializer=tf.zeros_initializer())
        with tf.device(ps):
            u = tf.get_variable("u", [3], use_resource=True, partitioner=None)
        y = tf.nn.relu(tf.matmul(x, w) + u, name="y")
        loop = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [tf.constant(0), y])
        either = tf.cond(tf.reduce_sum(y) > 0, lambda: loop[1], lambda: tf.zeros_like(y))
        loss = tf.reduce_mean(tf.square(either), name="loss")
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=tf.train.get_or_create_global_step())
        dataset = tf.data.Dataset.range(9).map(lambda v: v * 2).filter(lambda v: v > 3).batch(2)
        tf.identity(tf.strings.join(["a", tf.as_string(dataset.make_one_shot_iterator().get_next())]))
        tf.reshape(tf.fill([2, 3], 1.0), [3, 2])
        tf.strided_slice(tf.range(10), [0], [5])
        tf.split(tf.concat([y, y], 0), 2)
        tf.summary.scalar("loss", loss)
    return graph


def _graphs(folder: Path) -> Iterator[Format]:
    graph = _example_graph()
    saved = folder / "saved"
    with graph.as_default(), tf.Session() as session:
        saver = tf.train.Saver(sharded=True)
        meta = saver.export_meta_graph()
        session.run(tf.global_variables_initializer())
        builder = tf.saved_model.builder.SavedModelBuilder(str(saved))
        info = {name: tf.saved_model.utils.build_tensor_info(graph.get_tensor_by_name(f"{name}:0")) for name in "xy"}
        signature = tf.saved_model.build_signature_def({"x": info["x"]}, {"y": info["y"]}, "predict")
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, main_op=tf.saved_model.main_op.main_op()
        )
        builder.save()
    with_shapes = _example_graph("/job:ps/task:0").as_graph_def(add_shapes=True)
    small = protos.GraphDef()
    for node in with_shapes.node[:12]:
        small.node.add().CopyFrom(node)
    binary = [_message(protos.GraphDef)] * 4
    seeds = [{"graph.pb": found.SerializeToString()} for found in (with_shapes, small, small)]
    yield Format("GraphDef", seeds, [_flipped, *binary], _import, (ValueError, DecodeError), 6)
    samples = _SampledGraphs(folder)
    yield Format("GraphDef of an op", samples, [*binary], _import, (ValueError, DecodeError), 12)
    yield Format(
        "inspected GraphDef", seeds[1:], [_flipped, *binary, _as_text(protos.GraphDef)], _inspect, (ValueError,), 3
    )
    metas = [{"graph.meta": meta.SerializeToString()}]
    changes = [_message(protos.MetaGraphDef)] * 3
    yield Format(
        "MetaGraphDef",
        metas,
        [_flipped, *changes, _as_text(protos.MetaGraphDef)],
        _import_meta,
        (ValueError, OSError),
        4,
    )
    allowed: tuple[type[Exception], ...] = (ValueError, OSError, RuntimeError)
    yield Format("SavedModel", [_files_in(saved)], [_flipped, *[_in_saved_model(saved)] * 3], _load, allowed, 2)
    objects = _saved_objects(folder / "objects")
    changes = [_flipped, *[_in_saved_model(objects)] * 5]
    allowed = (ValueError, OSError, NotImplementedError)
    yield Format("SavedModel of objects", [_files_in(objects)], changes, _load_objects, allowed, 2)


def _in_saved_model(folder: Path) -> Callable[[random.Random, Files], Files]:
    model = (folder / "saved_model.pb").read_bytes()

    def changed(pick: random.Random, files: Files) -> Files:
        return {**files, "saved_model.pb": damage.changed(pick, protos.SavedModel, model)}

    return changed


class Scaled(tf.Module):
    """A variable, a list, and functions with a branch and a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = tf.Variable([1.0, 2.0], use_resource=True)
        self.parts = [self.factor]

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def scaled(self, x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x * self.factor, lambda: x)

    @tf.function
    def doubled(self, x: Any, times: int = 3) -> Any:
        return tf.while_loop(lambda i, _: i < times, lambda i, y: (i + 1, y * 2), [0, x])[1]


def _saved_objects(folder: Path) -> Path:
    with tf.Graph().as_default(), tf.Session() as session:
        module = Scaled()
        module.doubled(tf.zeros([2]))
        session.run(module.factor.initializer)
        tf.saved_model.save(module, str(folder))
    return folder


class _SampledGraphs(Sequence[Files]):
    """The graphs of the samples of all ops, each made when it is first wanted."""

    def __init__(self, folder: Path) -> None:
        self._rows, self._folder = kernel_cases.rows(), folder

    def __len__(self) -> int:
        return len(self._rows)

    @functools.cache  # noqa: B019 - it lives as long as the process
    def __getitem__(self, index: Any) -> Files:
        with tf.Graph().as_default() as graph:
            notation.build(self._rows[index], tf, builder, str(self._folder))
        return {"graph.pb": graph.as_graph_def().SerializeToString()}


def _import(place: Path) -> None:
    message = protos.GraphDef.FromString((place / "graph.pb").read_bytes())
    with tf.Graph().as_default():
        tf.import_graph_def(message, name="")


def _inspect(place: Path) -> None:
    from tfmini.show.inspection.api import inspect
    from tfmini.show.inspection.text import view

    found = inspect(str(place / "graph.pb"), ps=1, workers=1)
    found.to_json()
    view(found, "summary", full=False)


def _import_meta(place: Path) -> None:
    with tf.Graph().as_default():
        tf.train.import_meta_graph(str(place / "graph.meta"))


def _load(place: Path) -> None:
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=2000)) as session:
        tf.saved_model.loader.load(session, ["serve"], str(place))


def _load_objects(place: Path) -> None:
    with tf.Graph().as_default():
        loaded = tf.saved_model.load_v2(str(place))
        for name in ("scaled", "doubled"):
            function = getattr(loaded, name, None)
            if callable(function):
                try:
                    function(tf.zeros([2]))
                except TypeError as error:  # the damaged function has other parameters
                    if "argument" not in str(error):
                        raise


# ---- records ------------------------------------------------------------------------------------


def _records() -> Iterator[Format]:
    summary = protos.Summary(value=[protos.Summary.Value(tag="loss", simple_value=0.5)])
    found = [
        protos.Event(file_version="brain.Event:2").SerializeToString(),
        protos.Event(step=3, summary=summary).SerializeToString(),
    ]
    change = _each(lambda pick, data: damage.records(pick, found, protos.Event))
    yield Format("events", [{"events": b"".join(map(frame, found))}], [_flipped, change, change], _read_events)
    plain = b"".join(frame(bytes([i]) * 100 * i) for i in range(5))
    packed = [{"": plain}, {"GZIP": gzip.compress(plain)}, {"ZLIB": zlib.compress(plain)}]
    yield Format(
        "TFRecord", [{f"records{kind}": data} for f in packed for kind, data in f.items()], [_flipped], _read_records
    )
    yield Format(
        "Example",
        _examples(),
        [_flipped, *map(_message, (protos.SequenceExample, protos.Example, protos.TensorProto))],
        _Parsing(),
    )


def _examples() -> list[Files]:
    features = {
        "a": protos.Feature(int64_list=protos.Int64List(value=[1, 2])),
        "b": protos.Feature(float_list=protos.FloatList(value=[0.5])),
        "c": protos.Feature(bytes_list=protos.BytesList(value=[b"x", b""])),
    }
    example = protos.Example(features=protos.Features(feature=features))
    steps = protos.FeatureLists(feature_list={"s": protos.FeatureList(feature=[features["a"], features["a"]])})
    sequence = protos.SequenceExample(context=example.features, feature_lists=steps)
    tensor = protos.TensorProto(dtype=1, float_val=[1.0, 2.0])
    tensor.tensor_shape.dim.add(size=2)
    found = [message.SerializeToString() for message in (example, sequence, tensor)]
    return [
        {"data": data}
        for data in (
            *found,
            b'{"features": {"feature": {"a": {"int64List": {"value": [1]}}}}}',
            zlib.compress(b"x" * 99),
        )
    ]


class _Parsing:
    """The ops that parse strings, in one session."""

    def __init__(self) -> None:
        with tf.Graph().as_default() as graph:
            self._data = tf.placeholder(tf.string, [])
            fixed = {"a": tf.FixedLenFeature([2], tf.int64, [0, 0]), "b": tf.VarLenFeature(tf.float32)}
            ragged = {"c": tf.FixedLenSequenceFeature([], tf.string, allow_missing=True)}
            steps = {"s": tf.FixedLenSequenceFeature([2], tf.int64)}
            self._ops = [
                tf.parse_single_example(self._data, {**fixed, **ragged}),
                tf.parse_example(self._data[None], fixed),
                tf.parse_single_sequence_example(self._data, fixed, steps),
                tf.io.parse_tensor(self._data, tf.float32),
                tf.decode_raw(self._data, tf.int16),
                tf.io.decode_compressed(self._data, "ZLIB"),
                tf.io.decode_json_example(self._data),
                tf.deserialize_many_sparse(tf.stack([self._data] * 3)[None], tf.float32),
                tf.string_to_number(self._data),
                tf.io.decode_base64(self._data),
            ]
        self._session = tf.Session(graph=graph)

    def __call__(self, place: Path) -> None:
        data = (place / "data").read_bytes()
        _all_of(*(lambda op=op: self._session.run(op, {self._data: data}) for op in self._ops), allowed=())


def _read_events(place: Path) -> None:
    for _ in tf.train.summary_iterator(str(place / "events")):
        pass


def _read_records(place: Path) -> None:
    (path,) = place.iterdir()
    _all_of(*(lambda kind=kind: list(read_records(str(path), kind)) for kind in ("", "GZIP", "ZLIB")), allowed=())


# ---- images and rows ----------------------------------------------------------------------------


def _images() -> Iterator[Format]:
    noise = np.random.RandomState(0).randint(0, 255, (13, 9, 3)).astype(np.uint8)
    for kind, modes in (("PNG", "1 L LA P RGB RGBA I;16"), ("JPEG", "L RGB CMYK"), ("GIF", "P"), ("BMP", "L RGB")):
        seeds = []
        for mode in modes.split():
            image = (
                Image.fromarray(noise).convert(mode.partition(";")[0]).convert(mode)
                if mode != "I;16"
                else Image.fromarray(noise[:, :, 0].astype(np.uint16) * 257)
            )
            for options in ({}, {"progressive": True}) if kind == "JPEG" else ({},):
                file = io.BytesIO()
                more = (
                    {"save_all": True, "append_images": [image.rotate(90), image.rotate(180)]} if kind == "GIF" else {}
                )
                image.save(file, kind, **options, **more)
                seeds.append({"image": file.getvalue()})
        damages = [_flipped, _each(damage.png), _each(damage.png)] if kind == "PNG" else [_flipped]
        yield Format(kind, seeds, damages, _decode)


def _kernel(op_type: str) -> Callable[..., Any]:
    found = kernel_for(op_type, "CPU")
    assert found is not None
    return found.function


def _decode(place: Path) -> None:
    data = (place / "image").read_bytes()
    _all_of(
        *(
            lambda c=c, t=t: _kernel("DecodePng")(data, channels=c, dtype=t)
            for c in (0, 1, 3, 4)
            for t in (dtypes.uint8, dtypes.uint16)
        ),
        *(lambda r=r: _kernel("DecodeJpeg")(data, channels=0, ratio=r) for r in (1, 2)),
        lambda: _kernel("DecodeGif")(data),
        lambda: _kernel("DecodeAndCropJpeg")(data, np.array([0, 0, 2, 2]), channels=0),
        lambda: _kernel("DecodeBmp")(data, channels=0),
        lambda: _kernel("ExtractJpegShape")(data, output_type=dtypes.int32),
        allowed=(),
    )


def _rows() -> Iterator[Format]:
    rows = [
        {"rows": b'a,"b ""x"" \n c",1,0.5\r\n,,,\r\n"x","",-7,1e9\n'},
        {"rows": b'"' + b'a""\n' * 50 + b'",b,3,1\n'},
    ]
    packed = [{"rows.gz": gzip.compress(f["rows"])} for f in rows]
    yield Format("CSV", [*rows, *packed], [_flipped, _each(damage.text)], _read_rows, ())


def _read_rows(place: Path) -> None:
    (path,) = place.iterdir()
    compression = "GZIP" if path.suffix == ".gz" else ""
    defaults = [[b""], [b""], [0], [0.0]]
    with tf.Graph().as_default(), tf.Session() as session:
        text = tf.constant(path.read_bytes())
        dataset = tf.data.experimental.CsvDataset(str(path), ["", "", 0, 0.0], compression_type=compression)
        lines = tf.data.TextLineDataset(str(path), compression)
        nexts = [d.make_one_shot_iterator().get_next() for d in (dataset, lines)]
        reads = [lambda op=op: [session.run(op) for _ in range(9)] for op in nexts]
        _all_of(*reads, lambda: session.run(tf.decode_csv(text, defaults)), allowed=())


# ---- configurations -----------------------------------------------------------------------------

_CLUSTER = {"ps": ["a:1", "b:2"], "worker": {"0": "c:3", "2": "d:4"}}
_PROFILE = """
[machines.m]
cores = 4
kernels.MatMul = [[1.0, 2.0], [1e6, 30.0]]
[links.local]
latency_us = 20
us_per_mb = 100
[links.tcp]
gbit_per_s = 10
[ops]
MatMul = 3.5
"""


def _configurations(folder: Path) -> Iterator[Format]:
    def of_json(name: str, found: Any, read: Callable[[Path], Any], *allowed: type[Exception]) -> Format:
        return Format(name, [{"text": json.dumps(found).encode()}], [_each(damage.json_text)], read, allowed)

    def of_text(name: str, found: list[str], read: Callable[[Path], Any], *allowed: type[Exception]) -> Format:
        return Format(name, [{"text": text.encode()} for text in found], [_each(damage.text)], read, allowed)

    config = {"cluster": _CLUSTER, "task": {"type": "worker", "index": 2}, "rpc_layer": "grpc"}
    yield of_json("TF_CONFIG", config, _read_tf_config, ValueError)
    yield of_json("cluster specification", _CLUSTER, _read_cluster, ValueError, TypeError)
    yield of_text(
        "cluster file",
        [json.dumps({"ps": 2, "worker": ["a:1"]}), "ps: 2\nworker:\n- a:1\n"],
        _read_cluster_file,
        ValueError,
    )
    entry = {"task": "/job:ps/replica:0/task:3", "addresses": ["a:1", "b:2"], "incarnation": f"{77:016x}"}
    yield of_json("address book", entry, _read_book)
    yield of_text("host file", ["localhost slots=4\nother:2 # comment\n"], _read_hosts, click.UsageError)
    yield of_text("profile", [_PROFILE], lambda place: read_profile(place / "text"), ProfileError)
    yield of_text("invitation", [Invitation((), b"0" * 40).to_word()], _read_invitation, ValueError)
    yield of_text("hyperparameters", ["a=1,b=[1.5,2],c=x,b[1]=3,d=true"], _read_hparams, ValueError)
    yield of_json("hyperparameters in JSON", {"a": 1, "b": [1.5], "c": "x", "d": True}, _read_hparams, ValueError)
    made = {
        "format": "tfmini placement plan 1",
        "tasks": 2,
        "variables": {"w": 1},
        "partitions": {"e": [2, 1]},
        "ops": {"x": 0},
        "job": "ps",
    }
    yield of_json("plan", made, lambda place: plan(place / "text"), ValueError)
    shown = {"placement": {"a": {"device": "/job:ps/task:0"}}, "transfers": [{"tensor": "a:0", "src": "x", "dst": "y"}]}
    yield of_json("inspection in JSON", shown, _read_difference, ValueError)
    trace = protos.RunMetadata()
    node = trace.step_stats.dev_stats.add(device="/job:ps/replica:0/task:0/device:CPU:0").node_stats.add(node_name="a")
    node.all_end_rel_micros = 5
    yield Format(
        "trace",
        [{"text": trace.SerializeToString()}],
        [_flipped, _message(protos.RunMetadata)],
        lambda place: read_trace(place / "text"),
        (ValueError,),
    )
    yield of_text("Slurm's lists", ["n[08-10,12],m", "2(x3),1"], _read_slurm, ValueError)


def _text(place: Path) -> str:
    return (place / "text").read_bytes().decode(errors="surrogateescape")


@contextmanager
def _tf_config(text: str) -> Iterator[dict[str, str]]:
    environment = {"TF_CONFIG": text.replace("\0", "")}
    with mock.patch.dict(os.environ, {"TF_CONFIG": environment["TF_CONFIG"]}):
        yield environment


def _read_tf_config(place: Path) -> None:
    with _tf_config(_text(place)) as environment:
        resolver = TFConfigClusterResolver()
        _all_of(
            lambda: cluster_from_tf_config(environment),
            resolver.cluster_spec,
            resolver.master,
            lambda: resolver.task_type,
            lambda: resolver.task_id,
            lambda: resolver.rpc_layer,
            JsonFormatter,
            allowed=(ValueError,),
        )


def _read_cluster(place: Path) -> None:
    try:
        found = json.loads(_text(place))
    except (ValueError, RecursionError):
        return
    spec = ClusterSpec(found)
    _all_of(
        *(lambda job=job: spec.job_tasks(job) for job in spec.jobs),
        spec.as_cluster_def,
        spec.as_dict,
        allowed=(ValueError,),
    )


def _read_cluster_file(place: Path) -> None:
    read_cluster(str(place / "text"))


def _read_book(place: Path) -> None:
    (place / "text").rename(place / "ps-3.json")
    AddressBook(str(place)).find("/job:ps/replica:0/task:3")


def _read_hosts(place: Path) -> None:
    assert horovodrun.callback is not None
    horovodrun.callback(1, None, str(place / "text"), 1.0, ("no such script",))


def _read_invitation(place: Path) -> None:
    parse_invitation(_text(place))


def _read_hparams(place: Path) -> None:
    made = lambda: HParams(a=1, b=[0.5, 2.0], c="x", d=True)  # noqa: E731
    text = _text(place)
    from tfmini.compat.hparams import UnknownHparam

    _all_of(lambda: made().parse(text), lambda: made().parse_json(text), allowed=(ValueError, UnknownHparam))


def _read_difference(place: Path) -> None:
    try:
        found = json.loads(_text(place))
    except (ValueError, RecursionError):
        return
    difference(found, {"placement": {}, "transfers": []}).lines()


def _read_slurm(place: Path) -> None:
    text = _text(place)
    _all_of(lambda: expand_host_list(text), lambda: expand_tasks_per_node(text), allowed=(ValueError,))
