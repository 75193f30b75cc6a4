"""tf.flags and tf.app.run as scripts use them (in processes of their own: flags are global), and tf.logging."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tfmini as tf

DEFINED = """
import tfmini as tf
flags = tf.app.flags
flags.DEFINE_string("name", "a", "help")
flags.DEFINE_integer(flag_name="count", default_value=1, docstring="old names")
tf.flags.DEFINE_boolean("on", True, "")
tf.flags.DEFINE_list("hosts", "a,b", "")
tf.flags.DEFINE_enum("job", "ps", ["ps", "worker"], "")
tf.flags.DEFINE_float("rate", 0.5, "")
FLAGS = tf.app.flags.FLAGS
"""


def script(tmp_path: Path, tail: str, *args: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "s.py"
    path.write_text(DEFINED + tail)
    return subprocess.run([sys.executable, str(path), *args], capture_output=True, text=True, timeout=200)


def test_run_parses_flags_and_passes_on_the_rest(tmp_path: Path) -> None:
    shown = "argv[1:], FLAGS.name, FLAGS.count, FLAGS.on, FLAGS.hosts, FLAGS.job"
    tail = f"def main(argv):\n    print({shown})\ntf.app.run()\n"
    args = ("--name=x", "--count", "3", "--noon", "--hosts=c", "--job=worker", "--unknown=1", "rest")
    done = script(tmp_path, tail, *args)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['--unknown=1', 'rest'] x 3 False ['c'] worker\n"


def test_a_misspelt_flag_is_told(tmp_path: Path) -> None:
    tail = "tf.app.run(lambda argv: print(argv[1:], FLAGS.rate))"
    done = script(tmp_path, tail, "--raet=2", "--hots", "--unknown=1", "rest", "--logdir=/x")
    assert done.stdout == "['--raet=2', '--hots', '--unknown=1', 'rest', '--logdir=/x'] 0.5\n"
    told = [line for line in done.stderr.splitlines() if "no flag" in line]
    assert [line.rpartition("; ")[2] for line in told] == ["is it --rate?", "is it --hosts?"], done.stderr


def test_flags_parse_themselves_when_read(tmp_path: Path) -> None:
    assert script(tmp_path, "print(FLAGS.rate, 'rate' in FLAGS)", "--rate=2").stdout == "2.0 True\n"


@pytest.mark.parametrize("argument", ["--unknown=1", "--count=x", "--job=chief"])
def test_wrong_flags_are_errors(tmp_path: Path, argument: str) -> None:
    done = script(tmp_path, "print(FLAGS.name)", argument)
    assert done.returncode == 1
    assert argument.partition("=")[0].strip("-") in done.stderr


def test_flags_are_those_of_absl(tmp_path: Path) -> None:
    assert script(tmp_path, "from absl import flags as f; print(f.FLAGS['name'].default)").stdout == "a\n"


def test_flags_of_absl_may_be_defined_anew(tmp_path: Path) -> None:
    tail = "flags.DEFINE_string('log_dir', '/x', '')\ntf.app.run(lambda argv: print(FLAGS.log_dir))"
    assert script(tmp_path, tail).stdout == "/x\n"


def test_the_exit_code_is_that_of_main(tmp_path: Path) -> None:
    assert script(tmp_path, "tf.app.run(lambda argv: 4)").returncode == 4


def test_logging_goes_to_stderr_once(tmp_path: Path) -> None:
    tail = "def main(_):\n  tf.logging.set_verbosity(tf.logging.INFO)\n  tf.logging.info('a %d', 1)\ntf.app.run(main)"
    assert script(tmp_path, tail).stderr == "INFO:tensorflow:a 1\n"


def test_messages_are_filtered_by_level_and_count(caplog: pytest.LogCaptureFixture) -> None:
    tf.logging.set_verbosity(tf.logging.INFO)
    for i in range(5):
        tf.logging.log_first_n(tf.logging.INFO, "first %d", 2, i)
        tf.logging.log_every_n(tf.logging.WARN, "every %d", 3, i)
    tf.logging.debug("not shown")
    tf.logging.TaskLevelStatusMessage("status")
    tf.logging.log_if(tf.logging.ERROR, "no", False)
    tf.logging.flush()
    assert tf.logging.get_verbosity() == tf.logging.INFO == logging.INFO
    records = [r for r in caplog.records if r.thread == threading.get_ident()]  # the reactor's may have news as well
    assert [r.getMessage() for r in records] == ["first 0", "every 0", "first 1", "every 3", "status"]
    assert {r.filename for r in records} == {Path(__file__).name}


_TRAINING = """
  step = tf.train.get_or_create_global_step()
  add = step.assign_add(1)
  hook = tf.train.LoggingTensorHook({"step": step}, every_n_iter=1)
  with tf.train.MonitoredTrainingSession(hooks=[hook]) as session:
    session.run(add)
"""


def test_the_verbosity_holds_for_hooks_and_sessions(tmp_path: Path) -> None:
    loud = script(tmp_path, f"def main(_):\n  tf.logging.set_verbosity(tf.logging.INFO){_TRAINING}main(0)")
    assert "INFO:tensorflow:step = 1\n" in loud.stderr
    silent = script(tmp_path, f"def main(_):\n  tf.logging.set_verbosity(tf.logging.ERROR){_TRAINING}tf.app.run(main)")
    assert (silent.stderr, silent.returncode) == ("", 0)


def test_the_runtimes_warnings_are_always_logged() -> None:
    tf.logging.set_verbosity("ERROR")
    assert logging.getLogger("tfmini.runtime").getEffectiveLevel() == logging.WARNING
    tf.logging.set_verbosity(tf.logging.DEBUG)
    assert logging.getLogger("tfmini.runtime").getEffectiveLevel() == logging.DEBUG
