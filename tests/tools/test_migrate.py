"""`tfmini migrate`: what is listed of scripts and folders, as text and JSON, and what --fix writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tfmini.tools.cli import main

OLD = """\
import tensorflow as tf
import numpy as np
from helper import double

for i in xrange(3):
    print "step", i, np.float(double(i))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program of Python 2 with a helper, beside another one that it does not import."""
    (tmp_path / "train.py").write_text(OLD)
    (tmp_path / "helper.py").write_text("def double(d):\n    return sum({1: d}.itervalues()) * 2\n")
    (tmp_path / "other.py").write_text("import tensorflow as tf\ntf.pack([1])\n")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    (tmp_path / "venv" / "skipped.py").write_text("print 1\n")
    return tmp_path


def migrate(*words: object) -> Result:
    return CliRunner().invoke(main, ["migrate", *map(str, words)])


def test_a_script_is_listed_with_what_it_imports(program: Path) -> None:
    answer = migrate(program / "train.py")
    lines = answer.output.splitlines()
    assert answer.exit_code == 1
    assert f"{program}/train.py:5: xrange: write range" in lines
    assert f"{program}/train.py:6: print statement: write print(...)" in lines
    assert f"{program}/train.py:6: (mended) numpy.float: tfmini run gives float" in lines
    assert f"{program}/helper.py:2: .itervalues: write values()" in lines
    assert "other.py" not in answer.output
    assert (
        lines[-1] == "2 of 2 files: 3 places to change. --fix rewrites 3 of them. `tfmini run` mends 1 place by itself."
    )


def test_a_folder_is_listed_without_its_environments(program: Path) -> None:
    answer = migrate("--json", program)
    told = json.loads(answer.output)
    assert answer.exit_code == 1
    assert [Path(file["path"]).name for file in told["files"]] == ["helper.py", "other.py", "train.py"]
    assert told["summary"] == {"files": 3, "stops": 4, "mended": 1, "maybe": 0}
    other = told["files"][1]
    assert other["python"] == 3 and told["files"][2]["python"] == 2
    assert [(f["line"], f["what"], f["kind"], f["level"], f["fixable"]) for f in other["findings"]] == [
        (2, "tf.pack", "tensorflow", "stops", False)
    ]


def test_what_runs_ends_with_0(program: Path) -> None:
    (program / "good.py").write_text("import tensorflow as tf\nimport numpy as np\nprint(tf.constant(np.float(1)))\n")
    answer = migrate(program / "good.py")
    assert answer.exit_code == 0
    assert answer.output.splitlines()[-1] == "1 file: nothing to change. `tfmini run` mends 1 place by itself."


@pytest.mark.slow
def test_a_program_that_was_fixed_runs(program: Path) -> None:
    answer = migrate("--fix", program / "train.py")
    assert answer.exit_code == 0, answer.output
    assert (program / "train.py.orig").read_text() == OLD
    command = [sys.executable, "-m", "tfmini", "run", str(program / "train.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "step 0 0.0\nstep 1 2.0\nstep 2 4.0\n"
    assert "(program)" not in migrate("--fix", program / "train.py").output  # nothing is left to rewrite
    assert (program / "train.py.orig").read_text() == OLD


def test_the_text_of_the_author_is_kept_when_more_is_fixed_later(program: Path) -> None:
    script = program / "train.py"
    migrate("--fix", script)
    script.write_text(script.read_text() + "print 'more'\n")
    migrate("--fix", script)
    assert "print('more')" in script.read_text()
    assert (program / "train.py.orig").read_text() == OLD


def test_what_cannot_be_rewritten_stays(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("print 'a'\ndef f(:\n")
    answer = migrate("--fix", script)
    assert answer.exit_code == 1 and "neither Python 3 nor Python 2 can parse this" in answer.output
    assert script.read_text() == "print 'a'\ndef f(:\n"


def test_relative_imports_and_packages_are_followed(tmp_path: Path) -> None:
    package = tmp_path / "model"
    package.mkdir()
    (tmp_path / "main.py").write_text("from model.net import build\nbuild()\n")
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("from . import ops\nimport extra\ndef build(): ops.run()\n")
    (package / "ops.py").write_text("import tensorflow as tf\ndef run(): tf.neg(1)\n")
    (package / "extra.py").write_text("")
    lines = migrate(tmp_path / "main.py").output.splitlines()
    assert [line for line in lines if line.startswith(f"{package}/ops.py:2: tf.neg: ")]
    assert [line for line in lines if line.startswith(f"{package}/net.py:2: (perhaps) import extra: write from . ")]


def test_a_module_that_imports_its_own_name_means_a_package(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").write_text("")
    (tmp_path / "envs" / "no_such.py").write_text("import no_such\n")
    assert "envs/no_such.py:1: package no_such: pip install no_such" in migrate(tmp_path).output


def test_a_target_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert migrate(tmp_path / "none.py").exit_code == 2


def test_quotients_of_integers_stay_integers(tmp_path: Path) -> None:
    """Nothing else would tell of them: the program runs, with other results."""
    script = tmp_path / "half.py"
    script.write_text(
        "print 'Python 2'\nhalf = 7 / 2\nwords = ['a', u'\u00e9', 'c']\n"
        "print [half * 2, (len(words))/(2), 9 / 2 / 2, 9 / 2.0, -7 / 2, half / (3 +\n  1), float(9) / 2]\n",
        encoding="utf-8",
    )
    found = json.loads(migrate("--json", script).output)["files"][0]["findings"]
    whole = [(f["line"], f["what"]) for f in found if "//" in f["remedy"]]
    expected = ["-7 / 2", "9 / 2", "9 / 2 / 2", "half / (3 + 1)", "len(words) / 2"]
    assert whole == [(2, "7 / 2"), *((4, text) for text in expected)] and all(f["fixable"] for f in found)
    migrate("--fix", script)
    answer = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout == "Python 2\n[6, 1, 2, 4.5, -4, 0, 4.5]\n"


def test_a_source_that_asks_for_true_division_keeps_it(tmp_path: Path) -> None:
    script = tmp_path / "half.py"
    script.write_text("from __future__ import division\nprint 7 / 2\n")
    migrate("--fix", script)
    assert "print(7 / 2)" in script.read_text()


def test_a_name_that_a_star_import_may_have_bound_is_no_certain_integer(tmp_path: Path) -> None:
    script = tmp_path / "half.py"
    script.write_text("n = 7\nfrom unknown import *\nprint n / 2\n")
    migrate("--fix", script)
    assert "print(n / 2)" in script.read_text()
