"""`tfmini run`: the environment of a script, the place of its errors, and the hints about Python 2."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def run(tmp_path: Path, source: str | bytes, *args: str, command: str = "run") -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    data = source if isinstance(source, bytes) else textwrap.dedent(source).encode()
    script.write_bytes(data)
    argv = [sys.executable, "-m", "tfmini", command, str(script), *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=130, cwd=tmp_path)


def test_a_script_sees_the_same_as_in_python(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    source = """
        import json, sys
        import beside
        print(json.dumps([sys.argv[1:], __name__, __file__, sys.path[0], beside.VALUE,
                          sys.modules["__main__"].json is json, __spec__ is None if "__spec__" in globals() else True]))
    """
    done = run(tmp_path, source, "--flag=1", "--help", "-x", "rest")
    assert done.returncode == 0, done.stderr
    argv, name, file, path, value, is_main, spec = json.loads(done.stdout)
    assert argv == ["--flag=1", "--help", "-x", "rest"]
    assert (name, file, path, value) == ("__main__", str(tmp_path / "script.py"), str(tmp_path), 7)
    assert is_main and spec


def test_tensorflow_is_tfmini(tmp_path: Path) -> None:
    fake = tmp_path / "tensorflow"
    fake.mkdir()
    (fake / "__init__.py").write_text("raise RuntimeError('the installed one')\n")
    source = """
        import tensorflow as tf
        import tensorflow.compat.v1 as tf1
        from tensorflow.python.framework import ops
        from tensorflow.contrib.framework import arg_scope
        assert tf is tf1 and tf.__name__ == "tfmini"
        with tf.Session() as sess:
            print(sess.run(tf.constant(2) + 3), ops.Graph is tf.Graph)
    """
    done = run(tmp_path, source)
    assert (done.returncode, done.stdout) == (0, "5 True\n"), done.stderr


def test_the_exit_code_is_that_of_the_script(tmp_path: Path) -> None:
    assert run(tmp_path, "import sys; sys.exit(3)").returncode == 3
    assert run(tmp_path, "raise SystemExit('gone wrong')").returncode == 1


def test_a_worker_that_comes_after_the_end_of_its_run_has_not_failed(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import tensorflow as tf
        from tfmini.train.sessions.wrapped_session import RUN_HAS_ENDED
        raise tf.errors.OutOfRangeError(None, None, f"The queue is closed. {RUN_HAS_ENDED}.")
        """,
    )
    assert done.returncode == 0
    assert done.stderr == "tfmini: The queue is closed. The synchronous run has ended.\n"


def test_what_runs_at_exit_sees_that_the_script_has_failed(tmp_path: Path) -> None:
    """The chief of a synchronous run tells the others then whether the run has ended in good order."""
    source = """
        import atexit, sys
        atexit.register(lambda: print(repr(sys.last_value), flush=True))
        raise EOFError("no more")
        """
    assert run(tmp_path, source).stdout == "EOFError('no more')\n"


def test_an_error_shows_the_traceback_of_the_script(tmp_path: Path) -> None:
    done = run(tmp_path, "def f():\n    raise EOFError('no more')\n\nf()\n")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert f'File "{tmp_path / "script.py"}", line 4' in lines[1]
    assert lines[-1] == "EOFError: no more"
    assert "tfmini/tools" not in done.stderr


_REFUSALS = {
    "a graph": """
        def f():
            return tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))
        f()
        """,
    "a main function": """
        def main(_):
            with tf.contrib.framework.arg_scope([1]):
                pass
        tf.app.run(main)
        """,
    "a step": """
        bad = tf.check_numerics(tf.constant(float("nan")), "bad")
        with tf.train.MonitoredSession() as session:
            session.run(bad)
        """,
    "a callback": """
        def f(step_context):
            return {}[1]
        with tf.train.MonitoredSession() as session:
            session.run_step_fn(f)
        """,
}
_LEFT_OUT = re.compile(
    r"^tfmini: (1 frame|\d+ frames) inside tfmini left out; TFMINI_TRACEBACK=full shows them\.$", re.M
)


@pytest.mark.parametrize("what", _REFUSALS)
def test_a_traceback_has_the_frames_of_the_script_and_the_number_of_the_others(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import tensorflow as tf\n" + textwrap.dedent(_REFUSALS[what])
    told = run(tmp_path, source).stderr
    assert f'File "{tmp_path / "script.py"}"' in told
    assert not any(part in told for part in ("/tfmini/", "/absl/", "/contextlib.py"))
    assert _LEFT_OUT.search(told), told
    monkeypatch.setenv("TFMINI_TRACEBACK", "full")
    whole = run(tmp_path, source).stderr
    assert "/tfmini/" in whole and "left out" not in whole


@pytest.mark.parametrize(
    "line", ["tfmini.text.similar(None, [1])", "raise tfmini.errors.InternalError(None, None, 'x')"]
)
def test_a_traceback_of_what_may_be_a_bug_of_tfmini_is_whole(tmp_path: Path, line: str) -> None:
    told = run(tmp_path, f"import tfmini, tfmini.text\n{line}\n").stderr
    assert "Traceback" in told and "left out" not in told
    assert ("/tfmini/text.py" in told) == ("similar" in line)


def test_an_error_that_tfmini_has_handled_is_no_context_of_another(tmp_path: Path) -> None:
    source = """
        import sys
        import tensorflow as tf
        def hook(kind, error, trace):
            sys.__excepthook__(kind, error, trace)
        sys.excepthook = hook
        try:
            tf.get_default_graph().get_tensor_by_name("nobody:0")
        except KeyError:
            tf.get_default_graph().get_tensor_by_name("nothing:0")
        """
    told = run(tmp_path, source).stderr
    assert told.count("Traceback") == 2 and told.count("During handling") == 1  # the script's own two
    assert "/tfmini/" not in told


def test_a_python_2_script_gets_a_list_of_lines_to_change(tmp_path: Path) -> None:
    source = b'import urllib2\nprint "x"\ntry:\n\tpass\nexcept IOError, e:\n        raise e, "m"\n'
    done = run(tmp_path, source)
    assert done.returncode == 1
    for told in (
        "is written for Python 2",
        "line 1: module urllib2; import urllib.request",
        "line 2: print statement; write print(...)",
        "line 5: 'except X, e'; write 'except X as e:'",
        "line 6: 'raise X, message'; write raise X(message)",
    ):
        assert told in done.stderr


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("for i in xrange(3): pass", "xrange exists only in Python 2; write range"),
        ("{}.iteritems()", ".iteritems exists only in Python 2; write items()"),
        ("import cPickle", "module cPickle exists only in Python 2; import pickle"),
        ("range(4 / 2)", "write //"),
        ("{1: 2}.keys()[0]", "write list(d.keys())[i]"),
    ],
)
def test_python_2_errors_at_run_time_are_explained(tmp_path: Path, line: str, told: str) -> None:
    done = run(tmp_path, f"x = 1\n{line}\n")
    assert done.returncode == 1
    assert f"line 2: {told}" in done.stderr or told in done.stderr


def test_launch_runs_scripts_of_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import tensorflow as tf\nprint('it is', tf.__name__)\n")
    argv = [sys.executable, "-m", "tfmini", "launch", "--ps", "0", "--workers", "1", str(tmp_path / "script.py")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=130)
    assert done.returncode == 0, done.stderr
    assert "it is tfmini" in done.stdout


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tfmini", "run", str(tmp_path / "none.py")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=130)
    assert done.returncode == 2
    assert "none.py" in done.stderr


def _package(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/__init__.py").write_text("import tensorflow as tf\n")
    (tmp_path / "trainer/model.py").write_text("VALUE = 7\n")
    (tmp_path / "trainer/task.py").write_text(
        textwrap.dedent("""
        import argparse, json, os, sys
        from trainer import model
        from .model import VALUE
        parser = argparse.ArgumentParser()
        parser.add_argument("--job_name")
        found, rest = parser.parse_known_args()
        places = [os.path.basename(path) for path in (sys.path[0] or os.getcwd(), __file__)]
        print(json.dumps([*places, __name__, __package__, __spec__.name, found.job_name, rest, VALUE is model.VALUE]))
    """)
    )


@pytest.mark.parametrize("command, job", [(["run"], None), (["launch", "--ps", "0", "--no-color"], "worker")])
def test_a_module_runs_as_with_python(tmp_path: Path, command: list[str], job: str | None) -> None:
    _package(tmp_path)
    argv = [sys.executable, "-m", "tfmini", *command, "-m", "trainer.task", "--x=1"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=130, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if "__main__" in line)
    assert json.loads(line[line.index("[\"") :]) == [
        tmp_path.name, "task.py", "__main__", "trainer", "trainer.task", job, ["--x=1"], True
    ]  # fmt: skip


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tfmini", "run", "-m", "trainer.task"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=130, cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no module trainer.task" in done.stderr
