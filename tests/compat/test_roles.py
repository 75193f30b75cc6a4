"""How scripts learn their role: flags found in the source, placeholders, TF_CONFIG."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfmini.cluster import ClusterSpec, cluster_from_tf_config
from tfmini.compat.roles import (
    defined_role_flags,
    imported_modules,
    module_role_flags,
    role_arguments,
    role_flags_of,
    texts_of,
    tf_config,
)

CLUSTER = ClusterSpec({"ps": ["h:1", "h:2"], "worker": ["h:3"]})
W0, PS1 = ("worker", 0), ("ps", 1)

TF_FLAGS = """
import tensorflow as tf
tf.app.flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
flags.DEFINE_integer(flag_name="task_index", default_value=0)
DEFINE_string('ps_hosts', '', 'Comma-separated list')
print("worker_hosts", f(task_id=3), g("--worker_hosts"))
"""

ARGPARSE = """
parser.add_argument("-j", "--job-name", type=str)
parser.add_argument("--task_id", type=int)
@click.option("--worker_hosts")
def f(): pass
"""


def test_flags_are_found_where_they_are_defined() -> None:
    assert defined_role_flags(TF_FLAGS) == {
        "job_name": "--job_name",
        "task_index": "--task_index",
        "ps_hosts": "--ps_hosts",
    }
    assert defined_role_flags(ARGPARSE) == {
        "job_name": "--job-name",
        "task_id": "--task_id",
        "worker_hosts": "--worker_hosts",
    }
    assert defined_role_flags("tf.train.Server(c, job_name='ps', task_index=0)") == {}


@pytest.mark.parametrize("source", ["print 'hello'\nDEFINE_string('job_name', '')", "x = 1\0\n'--job_name'"])
def test_a_source_that_does_not_parse_is_searched(source: str) -> None:
    assert defined_role_flags(source) == {"job_name": "--job_name"}


def test_role_arguments_come_before_the_users() -> None:
    flags = {"job_name": "--job-name", "task_index": "--task_index", "ps_hosts": "--ps_hosts"}
    assert role_arguments(*PS1, CLUSTER, flags, ["train", "--steps=3"]) == [
        "--job-name=ps",
        "--task_index=1",
        "--ps_hosts=h:1,h:2",
        "train",
        "--steps=3",
    ]


@pytest.mark.parametrize("given", ["--job_name", "--job-name=x", "-job_name"])
def test_flags_of_the_user_are_not_repeated(given: str) -> None:
    assert role_arguments(*W0, CLUSTER, {"job_name": "--job_name"}, [given]) == [given]


def test_placeholders_in_arguments_are_replaced() -> None:
    args = ["{job}-{task}", "--ps={ps_hosts}", "--w={worker_hosts}", '{"json": {}}', "{other}"]
    assert role_arguments(*PS1, CLUSTER, {}, args) == [
        "ps-1",
        "--ps=h:1,h:2",
        "--w=h:3",
        '{"json": {}}',
        "{other}",
    ]


def test_cluster_from_tf_config_reads_tf_config() -> None:
    assert cluster_from_tf_config({"TF_CONFIG": tf_config(*PS1, CLUSTER)}) == (CLUSTER, "ps", 1)


def test_flags_of_an_imported_module_count_where_the_import_defines_them() -> None:
    module = """
import tensorflow as tf
tf.app.flags.DEFINE_string("job_name", "", "ps or worker")
tf.app.flags.DEFINE_integer("task_id", 0, "which")
def later():
    tf.app.flags.DEFINE_string("ps_hosts", "", "hosts")
"""
    assert module_role_flags(module) == {"job_name": "--job_name", "task_id": "--task_id"}
    assert module_role_flags("print 'python 2'") == {}


def test_modules_that_a_source_imports_are_found() -> None:
    source = "import a.b as c\ndef f():\n    from d import e\nfrom . import g\nfrom ..h import i\n"
    assert imported_modules(source) == ["a.b", ".g", "..h", "..h.i", "d", "d.e"]
    assert imported_modules("print 'python 2'") == []


def test_a_script_gets_the_flags_of_a_module_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import options\n")
    (tmp_path / "options.py").write_text("flags.DEFINE_string('job_name', '', '')\n")
    script = tmp_path / "script.py"
    script.write_text("import model, os\n")
    assert role_flags_of(str(script)) == {"job_name": "--job_name"}
    script.write_text("import model\nflags.DEFINE_string('task_index', '', '')\n")
    assert role_flags_of(str(script)) == {"task_index": "--task_index"}


def test_a_script_gets_the_flags_of_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "project" / "model"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .training import fit\n")
    (package / "training.py").write_text("from . import options\nfrom .....beyond import nothing\n")
    (package / "options.py").write_text(
        "def parser():\n    parser = ArgumentParser()\n    parser.add_argument('--job_name')\n    return parser\n"
    )
    script = package / "main.py"
    script.write_text("from model import fit\n")
    assert role_flags_of(script) == {}
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}{tmp_path / 'project'}")
    assert role_flags_of(script) == {"job_name": "--job_name"}
    (package / "training.py").write_text("from . import options\nflags.DEFINE_integer('task_id', 0, '')\n")
    assert role_flags_of(script) == {"task_id": "--task_id"}


def test_the_modules_of_the_library_are_no_modules_of_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are hundreds in a checkout that PYTHONPATH names."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    script = tmp_path / "script.py"
    script.write_text("import tfmini as tf, tests.launch.programs\nfrom tfmini.tools import launch\n")
    assert len(texts_of(script)) == 2
