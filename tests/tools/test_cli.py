"""The command table, its help, and the checks without processes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from tfmini._version import __version__
from tfmini.launch.output import OutputLines, Sink, TaskPrefixes
from tfmini.launch.supervision import TaskId
from tfmini.rpc.keys import load_keys
from tfmini.tools.cli import COMMANDS, main


def test_every_command_exists_with_its_own_line_of_help() -> None:
    context = click.Context(main)
    assert isinstance(main, click.Group)
    for name, (_, line) in COMMANDS.items():
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert line


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from tfmini.tools.cli import main; main(['--help'], standalone_mode=False);"
        "sys.exit('rich' in sys.modules or 'tfmini.tools.launch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "launch" in done.stdout


def test_unknown_commands_get_a_suggestion() -> None:
    assert "No such command 'lanch'. Did you mean 'launch'?" in CliRunner().invoke(main, ["lanch"]).output
    said = CliRunner().invoke(main, ["xyzzy"]).output
    assert "No such command 'xyzzy'. The commands are calibrate, dashboard, demo, h" in said


def test_the_version_is_an_option_as_well() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"tfmini {__version__}\n"


@pytest.mark.parametrize("arguments, said", [
    (["launch", "--cpus", "3"], "No such option '--cpus'. Did you mean '--ps-cpus' or '--worker-cpus' or"),
    (["launch", "--timeout", "3"], "No such option '--timeout'. Did you mean '--coordinator-timeout'?"),
    (["inspect", "--pss", "3"], "No such option '--pss'. Did you mean '--ps'? (Options of the script"),
    (["run", "--pss", "1"], "No such option '--pss'. Did you mean '--ps'?"),
    (["keys", "--nam", "x"], "No such option '--nam'. Did you mean '--name'?"),
    (["version", "--xyz"], "No such option '--xyz'.\n"),
    (["inspect", "nothing.py"], "Invalid value for 'SOURCE': Path 'nothing.py' does not exist."),
])  # fmt: skip
def test_mistyped_options_get_a_suggestion_that_resembles_them(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and said in result.output


def visible_options() -> dict[tuple[str, str], click.Option]:
    """(command, spelling) -> the option, of all commands and without hidden options."""
    context = click.Context(main)
    assert isinstance(main, click.Group)
    return {
        (name, spelling): option
        for name in COMMANDS
        for option in main.get_command(context, name).params  # type: ignore[union-attr]
        if isinstance(option, click.Option) and not option.hidden
        for spelling in option.opts
    }


def test_an_option_of_several_commands_looks_alike_in_all_of_them() -> None:
    options = visible_options()
    for spelling in ("--ps", "--workers", "--batch", "--fetch", "--entry", "--profile"):
        shown = {option.metavar for (_, each), option in options.items() if each == spelling}
        assert len(shown - {"N|A..B"}) == 1, (spelling, shown)
    told = [option.help or "" for (_, spelling), option in options.items() if spelling in ("--ps", "--workers")]
    assert all(text.startswith(("Number of ps tasks", "Number of worker", "Number of workers from")) for text in told)
    # One is the address of a Ray cluster, the other a directory.
    assert {spelling for _, spelling in options if "address" in spelling} == {"--ray-address", "--address-book"}
    # `--profile` is read everywhere; what is written has another name.
    assert {name for name, spelling in options if spelling == "--profile"} == {"launch", "place", "simulate"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_both_options_for_help(name: str) -> None:
    short, long = [CliRunner().invoke(main, [name, option]).output for option in ("-h", "--help")]
    assert short == long and short.startswith("Usage: ")


def test_each_command_with_a_script_says_where_the_scripts_options_go() -> None:
    for name in ("launch", "run", "trace", "manifest", "inspect", "simulate", "place"):
        said = " ".join(CliRunner().invoke(main, [name, "--help"]).output.split())
        assert "(a -- between them is ignored)" in said or "(after --)" in said, name


@pytest.mark.parametrize("name", ["run", "trace"])
def test_options_of_a_command_after_the_script_are_reported(name: str, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("parser.add_argument('--fetch')\n")
    script = tmp_path / "script.py"
    script.write_text("import sys\nif False:\n    import other\nprint('ps', sys.argv[1:])\n")
    options = ["--ps", "2", "--fetch=3", "-v"]
    code = f"from tfmini.tools.cli import main; main({[name, str(script), '--', *options]!r})"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=200)
    assert f"ps {options}" in done.stdout
    assert f"--ps follows {script}, so it is passed to the script; put options of `tfmini {name}`" in done.stderr


def test_options_of_a_manifest_after_the_script_are_reported() -> None:
    done = CliRunner().invoke(main, ["manifest", "--image", "i", "--secret", "s", "/in/image.py", "--ps", "2", "-v"])
    assert done.exit_code == 0 and "--ps follows /in/image.py, so it is passed to the script" in done.stderr


def test_keys_are_made_once(tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["keys", str(tmp_path / "new")])
    secret = tmp_path / "new" / "tfmini.key_secret"
    assert made.exit_code == 0 and f"export TFMINI_KEYS={secret}" in made.output and secret.exists()
    again = CliRunner().invoke(main, ["keys", str(tmp_path / "new")])
    assert again.exit_code == 1 and f"Error: {secret} exists" in again.output


def test_the_name_of_keys_is_no_path() -> None:
    done = CliRunner().invoke(main, ["keys", "--name", "a/b", "folder"])
    assert done.exit_code == 2 and "--name a/b is no name of a file: give the folder as DIRECTORY" in done.output


def test_the_key_of_a_client_is_admitted_by_its_cluster(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["keys", str(tmp_path)]).exit_code == 0
    cluster = load_keys(str(tmp_path / "tfmini.key_secret"))
    made = CliRunner().invoke(main, ["keys", "--client-of", cluster.file, "--name", "guest", str(tmp_path)])
    secret = tmp_path / "guest.key_secret"
    assert made.exit_code == 0 and f"{tmp_path / 'tfmini.admitted'} admits it" in made.output
    assert f"export TFMINI_KEYS={secret}" in made.output
    assert load_keys(str(secret)).server == cluster.public
    assert cluster.admits(load_keys(str(secret)).public)


def test_version() -> None:
    result = CliRunner().invoke(main, ["version"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()][:4] == [
        "tfmini",
        "Python",
        "numpy",
        "ml_dtypes",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ps", "0", "--workers", "0", __file__], "A cluster needs at least one task"),
        (["/does/not/exist.py"], "does not exist"),
        (["--coordinator-timeout", "0", __file__], "not in the range"),
        ([], "Missing argument 'SCRIPT'"),
    ],
)
def test_wrong_launch_arguments_are_named(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["launch", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_output_is_cut_into_lines(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        sink = Sink(file.fileno())
        output = OutputLines(b"> ", sink)
        for piece in (b"a", b"b\nc", b"\n\nd"):
            output.feed(piece)
        output.end()
        sink.drain(10.0)
        sink.close()
    assert (tmp_path / "out").read_bytes() == b"> ab\n> c\n> \n> d\n"
    assert output.last_lines() == ["ab", "c", "", "d"]


def test_a_very_long_line_is_split(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        sink = Sink(file.fileno())
        output = OutputLines(b"", sink)
        for _ in range(4):
            output.feed(b"x" * 30000)
        sink.drain(10.0)
        sink.close()
    assert [len(line) for line in output.last_lines()] == [90000]


def test_prefixes_have_one_width() -> None:
    tasks = [TaskId("ps", 0), TaskId("worker", 10)]
    console = Console(file=io.StringIO())
    assert list(TaskPrefixes(tasks, console, colour=True).values()) == [b"[ps/0]      ", b"[worker/10] "]


def test_the_demo_learns_how_the_club_divided() -> None:
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 0, done.output
    *workers, last = done.output.splitlines()
    assert [line.split(" has made 200 steps")[0] for line in workers] == ["worker 0", "worker 1", "worker 2"]
    assert last.endswith("of 34 members are where they went when the club divided")
    assert int(last.split()[0]) >= 31


def completed(words: str) -> list[str]:
    """What a shell offers for the last of some words, by the way of `docs/guides/shell-completion.md`."""
    asked = {"_TFMINI_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = CliRunner().invoke(main, prog_name="tfmini", env=asked)
    assert result.exit_code == 0, result.output
    return result.output.split()


def test_a_shell_completes_commands_options_and_files() -> None:
    assert completed("tfmini la") == ["plain,launch"]
    assert "plain,--workers" in completed("tfmini launch --work")
    assert completed("tfmini launch --ps 2 tra") == ["file,tra"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_page_on_completion_has_the_line_of_each_shell(shell: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "shell-completion.md").read_text()
    assert f"_TFMINI_COMPLETE={shell}_source tfmini" in page
    if shell != "bash":  # click asks Bash for its version, in a process
        result = CliRunner().invoke(main, prog_name="tfmini", env={"_TFMINI_COMPLETE": f"{shell}_source"})
        assert result.exit_code == 0 and f"_TFMINI_COMPLETE={shell}_complete" in result.output
