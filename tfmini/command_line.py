"""Commands whose errors about mistyped options and arguments name the option or argument that was meant, and types of
options that are checked before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tfmini import errors
from tfmini.program import ProgramModule
from tfmini.text import printable_lines, similar

HELP = {"help_option_names": ["-h", "--help"]}
BEFORE_SCRIPT = {**HELP, "allow_interspersed_args": False}
_FORMER = "former_"  # begins the parameters of options that have another name now


class Command(click.Command):
    """A command that suggests an option for an unknown one.

    Attributes:
      hint: a sentence that follows the error about an unknown option.
    """

    hint = ""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs it. Its errors may have names of a graph or words of a server."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = printable_lines(error.message)  # type: ignore[misc]  # click means its subclasses
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
            ctx.params |= ctx.meta.get(_FORMER, {})
            return rest
        except click.NoSuchOption as error:
            known = [spelling for option in self.get_params(ctx) for spelling in option.opts]
            raise click.UsageError(no_such("option", error.option_name, known, self.hint), ctx) from None


class BeforeScript(Command):
    """A command whose options come before the name of a script (`BEFORE_SCRIPT`); the script's own ones follow it.

    A ``--`` between the name and them belongs to the command, so that it may be written with every command.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if ctx.params.get("args", ())[:1] == ("--",):
            ctx.params["args"] = ctx.params["args"][1:]
        return rest


def misplaced(context: click.Context, script: str, args: Sequence[str], defined: DefinedOptions) -> str:
    """What to say about a script's arguments that look like options of the command; "" if there are none.

    It says nothing where another command invokes this one: that one has said it.

    Args:
      defined: which of some options the script has itself.
    """
    ours = {spelling for each in context.command.params for spelling in (*each.opts, *each.secondary_opts)}
    is_invoked = context.get_parameter_source("script") is None
    given = [word for arg in args if not is_invoked and (word := arg.partition("=")[0]) in ours and len(word) > 2]
    theirs = defined(script, given) if given else ()
    found = [word for word in dict.fromkeys(given) if word not in theirs]
    if not found:
        return ""
    verb, those = ("follows", "it is") if len(found) == 1 else ("follow", "they are")
    return (
        f"{' and '.join(found)} {verb} {script}, so {those} passed to the script; put options of `tfmini"
        f" {context.info_name}` before it."
    )


DefinedOptions = Callable[[str, Iterable[str]], Collection[str]]


_AS_MODULE = "tfmini.as_module"


class _Program(click.Path):
    """The path of a script, or after ``-m`` the name of a module."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ctx is None or not ctx.meta.get(_AS_MODULE) or isinstance(value, ProgramModule):
            return super().convert(value, param, ctx)
        try:
            return ProgramModule.named(value)
        except ModuleNotFoundError as error:
            self.fail(str(error), param, ctx)


def script_argument(
    name: str = "script", *, dir_okay: bool = False, required: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the argument SCRIPT, which may be the path of a script or, as with Python, ``-m MODULE``.

    Args:
      name: of the argument.
      dir_okay: whether it may be a folder.
      required: whether it must be there.
    """

    def note(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        context.meta[_AS_MODULE] = value

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        kind = _Program(exists=True, dir_okay=dir_okay)
        told = f"{name.upper()} is the name of a module, as with python -m."
        argument = click.argument(name, cls=OptionalArgument, type=kind, required=required)
        option = click.option(
            "-m", "as_module", is_flag=True, is_eager=True, expose_value=False, callback=note, help=told
        )
        return option(argument(command))

    return add


class WithScript(Command):
    """A command with options before and after a script's name; the script's own options follow ``--``."""

    hint = "(Options of the script itself come after --.)"


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def valued(name: str, kind: click.ParamType | None, metavar: str | None, told: str, default: Any = None) -> Decorator:
    """An option with a value. The help shows its default, if it has one."""
    return click.option(name, type=kind, metavar=metavar, help=told, default=default, show_default=default is not None)


def former(
    old: str, new: str, name: str, kind: click.ParamType | None = None,
    then: Callable[[click.Context, click.Parameter, Any], None] | None = None,
) -> Decorator:  # fmt: skip
    """The former spelling of an option: it works, with a warning; the help does not show it.

    Args:
      name: the parameter of the option.
      then: takes the value instead.
    """

    def take(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is None:
            return
        click.echo(f"tfmini: {old} is now called {new}; the old name will go.", err=True)
        if then is None:
            context.meta.setdefault(_FORMER, {})[name] = value
        else:
            then(context, parameter, value)

    return click.option(old, _FORMER + old.strip("-"), type=kind, hidden=True, expose_value=False, callback=take)


class OutputFile(click.Path):
    """A file to write. Its folder must be there: better an error now than after a long run."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        folder = Path(value).absolute().parent
        if not folder.is_dir():
            raise click.ClickException(f"Cannot write {value}: there is no directory {folder}.")
        return super().convert(value, param, ctx)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Within the block, an error about what the user gave becomes one of the command."""
    try:
        yield
    except errors.OpError as error:
        raise click.ClickException(errors.without_tags(error.message)) from None
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        raise click.ClickException(str(error)) from None


def write_text(path: str | Path, text: str) -> None:
    """Writes a file.

    Raises:
      click.ClickException: it cannot be written.
    """
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise click.ClickException(f"Cannot write {path}: {error.strerror}.") from None


class OptionalArgument(click.Argument):
    """An argument that errors call by its name, without the brackets of the usage line."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"'{(self.name or '').upper()}'"


def no_such(kind: str, name: str, known: Collection[str], hint: str = "") -> str:
    """The error about a name that a command line does not know, with a suggestion if there is one."""
    near = similar(name, known)
    meant = f"Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    return " ".join(filter(None, [f"No such {kind} '{name}'.", meant, hint]))
