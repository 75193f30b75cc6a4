"""`tfmini run pip-shim`: lets packages that require TensorFlow 1 be installed beside tfmini.

pip installs what a package requires unless the metadata of the environment say that it is there. The shim is nothing
but such metadata, under TensorFlow's names: ``tensorflow-1.15.5+tfmini.dist-info``, a local version, which no index
may have, and which every requirement takes that takes 1.15.5. Whoever wants it puts it into an environment of theirs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

import click

from tfmini.command_line import HELP, Command

VERSION = "1.15.5+tfmini"
NAMES = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu")
INSTALLER = "tfmini"
_METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: tfmini's stand-in for TensorFlow 1.15: metadata without code. `tfmini run pip-shim --remove` takes it away.

Packages that require {name} 1.x can be installed beside tfmini. It holds no code: `import tensorflow` imports tfmini in
programs that `tfmini run` and `tfmini launch` start, and nothing in others.
"""


def install(site: Path) -> list[str]:
    """Writes the metadata into a folder of packages; returns what is there now, such as ``tensorflow 1.15.5+tfmini``.

    Raises:
      FileExistsError: a TensorFlow is installed there.
    """
    real = [found for found in _of_tensorflow(site) if not _is_shim(found)]
    if real:
        names = " and ".join(f"{found.name} {found.version}" for found in real)
        raise FileExistsError(f"{names} is installed in {site}; the shim is for environments without TensorFlow.")
    remove(site)
    for name in NAMES:
        _write(site, name)
    return [f"{name} {VERSION}" for name in NAMES]


def remove(site: Path) -> list[str]:
    """Deletes the metadata that `install` wrote, and nothing else; returns what it was."""
    found = [(shim.name, shim.version) for shim in _of_tensorflow(site) if _is_shim(shim)]
    for name, version in found:
        shutil.rmtree(_folder(site, name, version))
    return [f"{name} {version}" for name, version in found]


def _folder(site: Path, name: str, version: str) -> Path:
    return site / f"{name.replace('-', '_')}-{version}.dist-info"


def _write(site: Path, name: str) -> None:
    folder = _folder(site, name, VERSION)
    folder.mkdir()
    texts = {"METADATA": _METADATA.format(name=name, version=VERSION), "INSTALLER": f"{INSTALLER}\n"}
    record = "".join(f"{folder.name}/{file},,\n" for file in (*texts, "RECORD"))  # for `pip uninstall`
    for file, text in {**texts, "RECORD": record}.items():
        (folder / file).write_text(text, encoding="utf-8")


def _of_tensorflow(site: Path) -> Iterator[Distribution]:
    return (found for found in distributions(path=[str(site)]) if found.name.lower().replace("_", "-") in NAMES)


def _is_shim(found: Distribution) -> bool:
    return (found.read_text("INSTALLER") or "").strip() == INSTALLER


def site_of(environment: Path) -> Path:
    """The folder of packages of a virtual environment, or of a Python that is given by its path.

    Raises:
      FileNotFoundError: there is no Python.
      OSError: the Python does not start.
    """
    places = (environment / "bin" / "python", environment / "Scripts" / "python.exe", environment)
    python = next((place for place in places if place.is_file()), None)
    if python is None:
        raise FileNotFoundError(f"{environment} is no virtual environment: it has no bin/python.")
    code = "import json, sysconfig; print(json.dumps(sysconfig.get_path('purelib')))"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise OSError(f"{python} does not start: {done.stderr.strip()}")
    return Path(json.loads(done.stdout))


@click.command("pip-shim", cls=Command, context_settings=HELP)
@click.option(
    "--into", "environment", metavar="ENV", type=click.Path(exists=True, path_type=Path), default=Path(sys.executable),
    show_default="this Python's", help="A virtual environment, or the path of its Python.",
)  # fmt: skip
@click.option("--remove", "takes_away", is_flag=True, help="Take it away again.")
def pip_shim(environment: Path, takes_away: bool) -> None:
    """Let packages that require tensorflow<2 be installed beside tfmini in ENV.

    It writes metadata of TensorFlow 1.15.5, and no code, so that pip takes the requirement for fulfilled. `pip list`
    shows it as 1.15.5+tfmini. `import tensorflow` needs `tfmini run`, as before.
    """
    try:
        site = site_of(environment)
        told = remove(site) if takes_away else install(site)
    except OSError as error:
        raise click.ClickException(str(error)) from None
    except subprocess.TimeoutExpired:
        raise click.ClickException(f"{environment} does not start within a minute.") from None
    if takes_away:
        click.echo(f"removed {', '.join(told)} from {site}" if told else f"there is no shim in {site}")
    else:
        click.echo(f"pip takes these for installed in {site}: {', '.join(told)}")
        click.echo("`tfmini run pip-shim --remove` takes them away again.")
