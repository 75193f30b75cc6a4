"""Bundles: round trips; a crash leaves one whole checkpoint; truncated and corrupt files are refused."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np
import pytest

from tfmini import dtypes, errors, protos
from tfmini.checkpoint import files
from tfmini.checkpoint import reader as sstable
from tfmini.checkpoint.reader import BundleReader, Slice, parse
from tfmini.checkpoint.writer import BundleWriter, merge

NUMBERS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
           "bool", "complex64", "complex128")  # fmt: skip
VALUES: dict[str, Any] = {
    **{name: np.arange(6).reshape(2, 3).astype(name) for name in NUMBERS},
    "bfloat16": np.array([1.5, -2], ml_dtypes.bfloat16),
    "scalar": np.float32(3),
    "empty": np.zeros((0, 4), np.float32),
    "string": np.array([[b"", b"abc"], [b"\0\xff", b"x" * 300]], object),
    "string_scalar": np.array(b"one", object),
}


def save(prefix: Any, values: dict[str, Any], disk: files.Disk = files.DISK) -> str:
    with BundleWriter(str(prefix), disk) as writer:
        for name, value in sorted(values.items()):
            writer.add(name, value, dtypes.as_dtype(value.dtype))
        writer.finish()
    return str(prefix)


def everything(prefix: str) -> dict[str, Any]:
    reader = BundleReader(prefix)
    return {name: reader.read(name).tolist() for name in reader.names()}


def test_values_round_trip(tmp_path: Path) -> None:
    reader = BundleReader(save(tmp_path / "m", VALUES))
    assert reader.names() == sorted(VALUES)
    for name, value in VALUES.items():
        found = reader.read(name)
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert found.tobytes() == value.tobytes() if value.dtype != object else (found == value).all()
    assert sorted(os.listdir(tmp_path)) == ["m.data-00000-of-00001", "m.index"]


def helpers() -> list[str]:
    """The threads that compute checksums."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tfmini-checksum")]


def _refuse_to_start(*_: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("can_start", [True, False])
def test_large_tensors_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_start: bool) -> None:
    """The checksum of a large tensor is computed beside its write, by a thread if one can be started."""
    if not can_start:
        monkeypatch.setattr(threading.Thread, "start", _refuse_to_start)
    large = np.arange(5_000_001, dtype=np.float32)
    small = np.arange(1000.0)
    with BundleWriter(str(tmp_path / "m")) as writer:
        for i in range(2):
            writer.add(f"large{i}", large, dtypes.float32)
            large += 1  # a caller may go on with its array
            writer.add(f"small{i}", small, dtypes.float64)
        assert bool(helpers()) is can_start
        writer.finish()
    assert helpers() == []
    reader = BundleReader(str(tmp_path / "m"))
    for i in range(2):
        assert (reader.read(f"large{i}") == np.arange(i, 5_000_001 + i, dtype=np.float32)).all()
        assert (reader.read(f"small{i}") == small).all()


def test_a_disk_that_fills_up_in_a_large_tensor_leaves_no_file_and_no_thread(tmp_path: Path) -> None:
    class Full(files.Disk):
        def create(self, path: str) -> IO[bytes]:
            open(path, "wb").close()
            return open("/dev/full", "wb", buffering=1 << 16)

    with pytest.raises(errors.ResourceExhaustedError, match="m.data-00000-of-00001; No space left on device"):
        save(tmp_path / "m", {"x": np.zeros(4_000_000, np.float32)}, Full())
    assert os.listdir(tmp_path) == []
    assert helpers() == []


def test_slices_round_trip_in_any_division(tmp_path: Path) -> None:
    whole = np.arange(40, dtype=np.float32).reshape(10, 4)
    with BundleWriter(str(tmp_path / "m")) as writer:
        for text in ("10 4 0,4:-", "10 4 4,3:0,4", "10 4 7,3:-"):
            shape, part = parse(text)
            start, length = part.extents[0]
            writer.add_slice("w", shape, part, whole[start : start + length], dtypes.float32)
        writer.finish()
    reader = BundleReader(str(tmp_path / "m"))
    assert (reader.read("w") == whole).all() and reader.entry("w").shape == (10, 4)
    for text, expected in (("10 4 2,6:-", whole[2:8]), ("10 4 4,3:-", whole[4:7]), ("10 4 -:1,2", whole[:, 1:3])):
        assert (reader.read_slice("w", parse(text)[1]) == expected).all()


def test_a_slice_of_a_whole_tensor(tmp_path: Path) -> None:
    whole = np.arange(12).reshape(4, 3)
    reader = BundleReader(save(tmp_path / "m", {"w": whole}))
    assert (reader.read_slice("w", parse("4 3 1,2:0,2")[1]) == whole[1:3, :2]).all()


def test_a_request_beyond_the_stored_slices_is_refused(tmp_path: Path) -> None:
    with BundleWriter(str(tmp_path / "m")) as writer:
        writer.add_slice("w", (4,), Slice(((0, 2),)), np.zeros(2), dtypes.float64)
        writer.finish()
    with pytest.raises(errors.DataLossError, match="tensor w: the stored slices do not cover"):
        BundleReader(str(tmp_path / "m")).read("w")


def test_a_name_can_be_used_once_only(tmp_path: Path) -> None:
    with BundleWriter(str(tmp_path / "m")) as writer:
        writer.add("x", np.zeros(2), dtypes.float64)
        with pytest.raises(errors.InvalidArgumentError, match="Adding duplicate key: x"):
            writer.add("x", np.zeros(2), dtypes.float64)
    assert os.listdir(tmp_path) == []


def test_missing_files_and_tensors_are_named(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="Failed to find any matching files for .*/m$"):
        BundleReader(str(tmp_path / "m"))
    prefix = save(tmp_path / "m", {"x": np.zeros(2)})
    for name, found in (("y", "it has 1 other tensors"), ("scope/x", "it has x")):
        with pytest.raises(errors.NotFoundError) as caught:
            BundleReader(prefix).read(name)
        assert caught.value.message == f"Key {name} not found in checkpoint {prefix}; {found}"
    os.remove(files.data_file(prefix, 0, 1))
    with pytest.raises(errors.NotFoundError, match="m.data-00000-of-00001; No such file"):
        BundleReader(prefix).read("x")
    with pytest.raises(errors.NotFoundError, match="/none/at; No such file"):
        BundleWriter(str(tmp_path / "none" / "at" / "all"))


# ---- merging --------------------------------------------------------------------------------


def test_merged_shards_are_one_checkpoint(tmp_path: Path) -> None:
    parts = tmp_path / "m_temp" / "part"
    for shard, name in enumerate("ab"):
        with BundleWriter(f"{parts}-{shard}") as writer:
            writer.add(name, np.full(3, shard), dtypes.int64)
            writer.add_slice("w", (4,), Slice(((2 * shard, 2),)), np.full(2, shard), dtypes.int64)
            writer.finish()
    merge([f"{parts}-0", f"{parts}-1"], str(tmp_path / "m"))
    assert everything(str(tmp_path / "m")) == {"a": [0] * 3, "b": [1] * 3, "w": [0, 0, 1, 1]}
    assert sorted(os.listdir(tmp_path)) == ["m.data-00000-of-00002", "m.data-00001-of-00002", "m.index"]


def test_merging_conflicting_bundles(tmp_path: Path) -> None:
    first, second = (save(tmp_path / name, {"x": np.zeros(2)}) for name in "ab")
    with pytest.raises(errors.InvalidArgumentError, match=f"Duplicate tensor keyed by x .* prefix: {second}"):
        merge([first, second], str(tmp_path / "m"))
    with pytest.raises(errors.InvalidArgumentError, match="/none did not exist.*all tasks share"):
        merge([first, str(tmp_path / "none")], str(tmp_path / "m"))


# ---- crashes --------------------------------------------------------------------------------


class Crash(BaseException):
    """The process is killed: nothing after it happens."""


class QuickDisk(files.Disk):
    """Does not wait for the device: the test's crashes are of the process."""

    def sync(self, file: IO[bytes]) -> None:
        file.flush()

    def sync_directory(self, path: str) -> None:
        pass


class FailingDisk(QuickDisk):
    """Stops before the change of number ``after``; a crash leaves no chance to tidy up either."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.dead = False

    def _step(self) -> None:
        if self.dead or not self.left:
            self.dead = True
            raise Crash
        self.left -= 1

    def make_directory(self, path: str) -> None:
        self._step()
        super().make_directory(path)

    def create(self, path: str) -> IO[bytes]:
        self._step()
        file = super().create(path)
        write = file.write

        class Torn:
            """Half of a write reaches the file."""

            def write(_, data: Any) -> int:
                if not self.left:
                    write(memoryview(data)[: len(data) // 2])
                self._step()
                return write(data)

            def __getattr__(_, name: str) -> Any:
                return getattr(file, name)

        return Torn()  # type: ignore[return-value]

    def sync(self, file: IO[bytes]) -> None:
        self._step()
        super().sync(file)

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def sync_directory(self, path: str) -> None:
        self._step()
        super().sync_directory(path)

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)

    def remove_directory(self, path: str) -> None:
        self._step()
        super().remove_directory(path)


OLD = {"x": np.arange(3), "s": np.array([b"old"], object)}
NEW = {"x": np.arange(3) + 7, "s": np.array([b"new and longer"], object)}


def as_lists(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() for name, value in sorted(values.items())}


def save_shards(prefix: str, values: dict[str, Any], disk: files.Disk) -> None:
    shards = [f"{prefix}_temp/part-{i}" for i in range(2)]
    for shard, name in zip(shards, sorted(values)):
        save(shard, {name: values[name]}, disk)
    merge(shards, prefix, disk=disk)


@pytest.mark.parametrize("how", [save, save_shards])
def test_a_crash_at_any_instant_leaves_the_old_checkpoint_or_the_new_one(tmp_path: Path, how: Any) -> None:
    outcomes = []
    for after in range(100):
        prefix = str(tmp_path / str(after) / "m")
        os.mkdir(os.path.dirname(prefix))
        how(prefix, OLD, QuickDisk())
        disk = FailingDisk(after)
        with contextlib.suppress(Crash):
            how(prefix, NEW, disk)
        found = everything(prefix)
        assert found in (as_lists(OLD), as_lists(NEW)), f"before change {after}"
        outcomes.append(found == as_lists(NEW))
        if not disk.dead:
            break
        how(prefix, NEW, QuickDisk())  # leftover files do no harm
        assert everything(prefix) == as_lists(NEW)
    assert not outcomes[0] and outcomes[-1] and outcomes == sorted(outcomes) and len(outcomes) > 10


def test_a_failed_save_leaves_no_files(tmp_path: Path) -> None:
    class Full(files.Disk):
        def sync(self, file: IO[bytes]) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(errors.ResourceExhaustedError, match="m.data-00000-of-00001; No space left on device"):
        save(tmp_path / "m", OLD, Full())
    assert os.listdir(tmp_path) == []


def test_overwriting_leaves_one_set_of_files(tmp_path: Path) -> None:
    for _ in range(3):
        save(tmp_path / "m", NEW)
        assert len(os.listdir(tmp_path)) == 2


# ---- corrupt and truncated files -----------------------------------------------------------------


def test_every_corrupt_byte_of_the_data_is_detected(tmp_path: Path) -> None:
    prefix = save(tmp_path / "m", {"s": NEW["s"], "x": NEW["x"]})
    path = files.data_file(prefix, 0, 1)
    content = Path(path).read_bytes()
    limit = BundleReader(prefix).entry("x").offset
    for position in range(len(content)):
        corrupt = bytearray(content)
        corrupt[position] ^= 0x40
        Path(path).write_bytes(corrupt)
        name = "s" if position < limit else "x"
        with pytest.raises(errors.DataLossError) as caught:
            BundleReader(prefix).read(name)
        assert path in caught.value.message and f"tensor {name}: " in caught.value.message


def test_a_truncated_data_file_is_refused(tmp_path: Path) -> None:
    prefix = save(tmp_path / "m", {"s": NEW["s"], "x": NEW["x"]})
    path = files.data_file(prefix, 0, 1)
    content = Path(path).read_bytes()
    for size in range(len(content)):
        Path(path).write_bytes(content[:size])
        with pytest.raises(errors.DataLossError, match="tensor x: Read less bytes than requested. The file is trunc"):
            BundleReader(prefix).read("x")


def test_a_truncated_or_corrupt_index_is_refused(tmp_path: Path) -> None:
    prefix = save(tmp_path / "m", OLD)
    path = Path(files.index_file(prefix))
    content = path.read_bytes()
    for damaged in (b"", content[:40], content[:-1], b"\x01" + content[1:], content[:20] + b"\x7f" + content[21:]):
        path.write_bytes(damaged)
        with pytest.raises(errors.DataLossError, match="Unable to read file .*m.index"):
            BundleReader(prefix)


# ---- what a hostile index may say ---------------------------------------------------------------


def _with_index(prefix: str, changes: Callable[[dict[bytes, bytes]], None]) -> str:
    """Changes the index of a checkpoint; its checksums are right afterwards."""
    path = files.index_file(prefix)
    entries = dict(sstable.read(Path(path).read_bytes()))
    changes(entries)
    Path(path).write_bytes(sstable.build(sorted(entries.items())))
    return prefix


def _changed(name: str, change: Callable[[Any], None]) -> Callable[[dict[bytes, bytes]], None]:
    def apply(entries: dict[bytes, bytes]) -> None:
        entry = protos.BundleEntryProto.FromString(entries[name.encode()])
        change(entry)
        entries[name.encode()] = entry.SerializeToString()

    return apply


def _two_halves(path: Path) -> str:
    prefix = str(path / "halves")
    with BundleWriter(prefix) as writer:
        for start in (0, 4):
            part = Slice(((start, 4), (0, -1)))
            writer.add_slice("w", (8, 2), part, np.full((4, 2), start, np.float32), dtypes.float32)
        writer.finish()
    return prefix


def _twice(entry: Any) -> None:
    entry.slices[1].CopyFrom(entry.slices[0])


def _other_rank(entry: Any) -> None:
    entry.shape.dim.add(size=1)


def _narrow(entry: Any) -> None:
    del entry.slices[0].extent[1]


def _outside(entry: Any) -> None:
    entry.slices[1].extent[0].start = 5


def _negative(entry: Any) -> None:
    entry.shape.dim[0].size = -8


def _resource(entry: Any) -> None:
    entry.dtype = dtypes.resource.as_datatype_enum


def _unknown(entry: Any) -> None:
    entry.dtype = 77


@pytest.mark.parametrize("change", [_twice, _other_rank, _narrow, _outside, _negative, _resource, _unknown])
def test_an_entry_that_no_tensor_can_have_is_refused(tmp_path: Path, change: Any) -> None:
    """Two equal halves once left the other half of the result uninitialised."""
    prefix = _with_index(_two_halves(tmp_path), _changed("w", change))
    for read in (
        lambda: BundleReader(prefix).read("w"),
        lambda: BundleReader(prefix).read_slice("w", Slice(((2, 4), (0, 1)))),
        lambda: BundleReader(prefix).stored(),
    ):
        with pytest.raises(errors.DataLossError, match="w"):
            read()


def test_a_piece_of_another_shape_than_its_slice_is_refused(tmp_path: Path) -> None:
    """A single row would be repeated."""

    def one_row(entries: dict[bytes, bytes]) -> None:
        key = next(key for key in entries if key[:1] == b"\0")  # the first slice's
        entry = protos.BundleEntryProto.FromString(entries[key])
        entry.shape.dim[0].size, entry.size = 1, 8
        data = np.zeros(2, np.float32).view(np.uint8)
        entry.crc32c = files.masked(files.extend(0, data))
        entries[key] = entry.SerializeToString()

    with pytest.raises(errors.DataLossError, match="has another type or shape"):
        BundleReader(_with_index(_two_halves(tmp_path), one_row)).read("w")


def test_sizes_are_checked_before_memory_is_taken(tmp_path: Path) -> None:
    prefix = save(tmp_path / "a", {"x": np.arange(4, dtype=np.float32), "s": np.array([b"a", b"b"], object)})

    def huge(entry: Any) -> None:
        entry.shape.dim[0].size, entry.size = 1 << 50, 1 << 52

    for name in ("x", "s"):
        with pytest.raises(errors.DataLossError, match="Read less bytes than requested"):
            BundleReader(_with_index(prefix, _changed(name, huge))).read(name)

    def far(entry: Any) -> None:
        entry.offset = -5

    with pytest.raises(errors.DataLossError, match="its place in the data files is invalid"):
        BundleReader(_with_index(prefix, _changed("x", far))).read("x")


def test_slices_cannot_ask_for_more_memory_than_is_stored(tmp_path: Path) -> None:
    def huge(entry: Any) -> None:
        entry.shape.dim[1].size = 1 << 50

    with pytest.raises(errors.DataLossError, match="no file holds 9007199254740992 elements"):
        BundleReader(_with_index(_two_halves(tmp_path), _changed("w", huge))).read("w")


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    prefix = save(tmp_path / "a", {"x": np.arange(4, dtype=np.float32)})
    with pytest.raises(errors.DataLossError, match="Unable to read file .*utf-8"):
        BundleReader(_with_index(prefix, lambda entries: entries.update({b"\xff\xfe": entries[b"x"]})))
