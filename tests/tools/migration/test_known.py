"""What names are, and that what `migrate` says of `tfmini run` is so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tfmini.compat.old_python import behaviours
from tfmini.tools.migration import known
from tfmini.tools.migration.known import Absent


def test_a_path_is_looked_up_as_far_as_modules_and_classes_go() -> None:
    import math

    assert known.look_up("math.sqrt") is math.sqrt
    assert known.look_up("tensorflow.app.flags.FLAGS.x.y") is None
    missing = known.look_up("tensorflow.contrib.no_such.deeper")
    assert isinstance(missing, Absent) and missing.path == "tensorflow.contrib.no_such"
    package = known.look_up("matplotlib.pyplot") if not known.is_installed("matplotlib") else None
    assert package is None or (isinstance(package, Absent) and package.package)


def test_nothing_of_the_working_directory_is_imported(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "script.py").write_text("import yaml\nyaml.load(f)\nyaml.no_such\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "script.py").write_text("import yaml\nyaml.load(f)\nyaml.no_such\n")
    command = [sys.executable, "-m", "tfmini", "migrate", "sub/script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "imported" not in done.stdout + done.stderr
    assert done.returncode == 1 and "sub/script.py:3: yaml.no_such" in done.stdout


@pytest.mark.slow
def test_run_gives_what_is_said_to_be_given(tmp_path: Path) -> None:
    members = "\n".join(f"networkx.Graph.{name}" for name in behaviours.MEMBERS["networkx"])
    members += "\n" + "\n".join(
        f"h5py.{kind}.{name}" for kind, name in zip(("Dataset", "File"), behaviours.MEMBERS["h5py"], strict=True)
    )
    paths = [path for path in _SAID if known.mended(path)]
    assert paths == _SAID
    lines = [f"import {path.rpartition('.')[0]}; {path}" if "." in path else f"import {path}" for path in paths]
    (tmp_path / "script.py").write_text("\n".join([*lines, "import networkx, h5py", members, "print('all')"]))
    command = [sys.executable, "-m", "tfmini", "run", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "all\n", done.stderr


_SAID = [
    *("numpy.float", "numpy.mat", "numpy.rank", "numpy.lib.pad", "PIL.Image.ANTIALIAS", "collections.Mapping"),
    *("scipy.misc.imread", "scipy.ndimage.imread", "inspect.getargspec", "distutils.version.LooseVersion"),
    *("imp", "pkg_resources", "imp.load_source", "pkg_resources.get_distribution", "time.clock"),
    *("scipy.sparse.linalg.eigen.arpack.eigsh",),
]


@pytest.mark.parametrize("name", sorted(known.DROPPED))
def test_what_is_said_to_be_gone_has_a_remedy_and_is_not_given(name: str) -> None:
    assert known.dropped(name) and known.dropped(f"{name}.deeper")
    assert not known.mended(name)
