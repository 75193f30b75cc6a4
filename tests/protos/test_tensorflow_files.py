"""The messages under TensorFlow's names, for the generated code of other projects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tfmini import protos
from tfmini.protos.tensorflow_files import TensorFlowFiles


@pytest.fixture(scope="module")
def files() -> TensorFlowFiles:
    return TensorFlowFiles(protos.FILES)


def test_every_message_and_enum_is_in_a_file_of_tensorflow(files: TensorFlowFiles) -> None:
    for name, module in protos.MODULE_OF.items():
        found = getattr(files.with_name(name), name)
        package = "tensorflow.error" if module == "error_codes_pb2" else "tensorflow"
        assert found.DESCRIPTOR.full_name == f"{package}.{name}"


@pytest.mark.parametrize(
    "stem, path",
    [
        ("example", "tensorflow/core/example/example.proto"),
        ("tensor", "tensorflow/core/framework/tensor.proto"),
        ("named_tensor", "tensorflow/core/protobuf/named_tensor.proto"),
        ("event", "tensorflow/core/util/event.proto"),
        ("error_codes", "tensorflow/core/lib/core/error_codes.proto"),
        ("checkpoint_state", "tensorflow/python/training/checkpoint_state.proto"),
    ],
)
def test_files_have_the_paths_of_tensorflow(files: TensorFlowFiles, stem: str, path: str) -> None:
    module = files.module(stem)
    assert vars(module)["DESCRIPTOR"].name == path
    assert module.__name__ == path.removesuffix(".proto").replace("/", ".") + "_pb2"


def test_bytes_are_those_of_our_names(files: TensorFlowFiles) -> None:
    ours = protos.Example()
    ours.features.feature["a"].int64_list.value.extend([1, 2])
    theirs = vars(files.module("example"))["Example"].FromString(ours.SerializeToString())
    assert theirs.features.feature["a"].int64_list.value == [1, 2]
    assert theirs.SerializeToString() == ours.SerializeToString()


def test_a_file_of_another_project_takes_these_messages(files: TensorFlowFiles) -> None:
    example = vars(files.module("example"))["Example"]
    file = descriptor_pb2.FileDescriptorProto(name="of_another/list.proto", package="of_another", syntax="proto3")
    file.dependency.append("tensorflow/core/example/example.proto")
    field = descriptor_pb2.FieldDescriptorProto(name="examples", number=1, type=11, label=3)
    field.type_name = ".tensorflow.Example"
    file.message_type.add(name="List").field.append(field)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("of_another.List"))()
    made.examples.append(example())
    assert isinstance(made.examples[0], example)


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_where_tensorflow_is_tfmini_all_have_the_names(implementation: str) -> None:
    run(
        f"import os; os.environ['PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION'] = {implementation!r}\n"
        "from tfmini.compat import internals; internals.install()\n"
        "import pickle, tensorflow as tf; from tensorflow.core.example import example_pb2\n"
        "from tensorflow.core.framework import types_pb2\n"
        "assert tf.train.Example is example_pb2.Example and types_pb2.DT_FLOAT == 1\n"
        "assert example_pb2.DESCRIPTOR.name == 'tensorflow/core/example/example.proto'\n"
        "e = tf.train.Example(); e.features.feature['a'].float_list.value.append(1)\n"
        "assert pickle.loads(pickle.dumps(e)) == e\n"
        "tf.constant(1); g = tf.get_default_graph().as_graph_def()\n"
        "assert tf.GraphDef.FromString(g.SerializeToString()) == g"
    )


def test_messages_that_were_used_before_keep_our_names() -> None:
    run(
        "from tfmini import protos; before = protos.Example\n"
        "from tfmini.compat import internals; internals.install(); import tensorflow as tf\n"
        "assert tf.train.Example is before and protos.Feature.DESCRIPTOR.full_name == 'tfmini.Feature'"
    )


def test_a_script_under_run_may_load_files_that_need_tensorflows(tmp_path: Path) -> None:
    script = tmp_path / "serving.py"
    script.write_text(
        "import pickle\n"
        "import tensorflow as tf\n"
        "from google.protobuf import descriptor_pb2, descriptor_pool\n"
        "from tensorflow.core.example import example_pb2\n"
        "file = descriptor_pb2.FileDescriptorProto(name='serving/input.proto', package='serving', syntax='proto3')\n"
        "file.dependency.append('tensorflow/core/example/example.proto')\n"
        "field = file.message_type.add(name='Examples').field.add(name='all', number=1, label=3, type=11)\n"
        "field.type_name = '.tensorflow.Example'\n"
        "descriptor_pool.Default().AddSerializedFile(file.SerializeToString())\n"
        "one = tf.train.Example()\n"
        "print(pickle.loads(pickle.dumps(one)) == one, one.DESCRIPTOR.full_name)\n"
    )
    run = [sys.executable, "-m", "tfmini", "run", str(script)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True", "tensorflow.Example"], done.stderr
