"""The `tfmini` command line: a table of sub-commands, each imported only when it is used.

To add one, write a click command in a module of this package and give it a row in `COMMANDS`.
"""

from __future__ import annotations

import difflib
import importlib

import click

COMMANDS: dict[str, tuple[str, str]] = {
    # command: ("module:attribute", one line for `tfmini --help`)
    "inspect": ("tfmini.tools.inspect:inspect", "Show what each task does and sends in a step, without running it."),
    "keys": ("tfmini.tools.keys:keys", "Create the keys for a cluster on several machines."),
    "launch": ("tfmini.tools.launch:launch", "Run a script as a local cluster of real processes."),
    "run": ("tfmini.tools.run:run", "Run a TensorFlow 1.x script, unmodified, on tfmini."),
    "trace": ("tfmini.tools.trace:trace", "Run a script and write the timeline of one of its steps."),
    "version": ("tfmini.tools.version:version", "Show the versions of tfmini and of its dependencies."),
}


class LazyGroup(click.Group):
    """A click group whose commands come from `COMMANDS`; `--help` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            remedy = f"Did you mean '{close[0]}'?" if close else f"There are {', '.join(self.list_commands(ctx))}."
            raise click.UsageError(f"{error.message} {remedy}", error.ctx) from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """tfmini: TensorFlow 1.x's cluster model in Python."""
