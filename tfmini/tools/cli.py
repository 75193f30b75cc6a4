"""The `tfmini` command line: a table of sub-commands, each imported only when it is used.

To add one, write a click command in a module of this package and give it a row in `COMMANDS`.
"""

from __future__ import annotations

import importlib
import platform
from importlib import metadata
from typing import Any

import click

from tfmini import protos
from tfmini._version import __version__
from tfmini.command_line import HELP, Command, no_such

COMMANDS: dict[str, tuple[str, str]] = {
    # command: ("module:attribute", one line for `tfmini --help`)
    "calibrate": ("tfmini.tools.simulate:calibrate", "Measure this machine, for predictions."),
    "dashboard": ("tfmini.tools.dashboard:dashboard", "Serve a live page of a running cluster."),
    "demo": ("tfmini.tools.cli:demo", "Train a small model on a cluster of this machine."),
    "horovodrun": ("tfmini.tools.launch:horovodrun", "Run a Horovod script as N ranks, with Horovod's options."),
    "inspect": ("tfmini.tools.inspect:inspect", "Show what each task does and sends in a step, without running it."),
    "jobs": ("tfmini.tools.launch:jobs", "List the running jobs of tfmini launch."),
    "keys": ("tfmini.tools.keys:keys", "Create the keys for a cluster on several machines."),
    "launch": ("tfmini.tools.launch:launch", "Run a script as every task of a cluster, on this machine or others."),
    "logs": ("tfmini.tools.launch:logs", "Print the last lines of a running job's tasks."),
    "manifest": ("tfmini.launch.manifest:manifest", "Print the manifest of a cluster for Kubernetes."),
    "migrate": ("tfmini.tools.migrate:migrate_command", "List what of a program will not run, before its first run."),
    "place": ("tfmini.tools.place:place", "Propose which variable goes to which ps, by predicted steps."),
    "run": ("tfmini.tools.run:run", "Run a TensorFlow 1.x script, unmodified, on tfmini."),
    "scale": ("tfmini.tools.launch:scale", "Change the number of workers or ps of a running job."),
    "simulate": ("tfmini.tools.simulate:simulate", "Predict the step times of a script on a cluster."),
    "stacks": ("tfmini.tools.status:stacks", "Explain why the steps of a running cluster wait."),
    "status": ("tfmini.tools.status:status", "Show what a running cluster does."),
    "stop": ("tfmini.tools.launch:stop", "End a running job; it saves."),
    "trace": ("tfmini.tools.inspect:trace", "Run a script and write the timeline of one of its steps."),
    "version": ("tfmini.tools.cli:version", "Show the versions of tfmini and of its dependencies."),
}


class LazyGroup(click.Group):
    """A click group whose commands come from `COMMANDS`; `--help` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # Most commands run scripts to which tfmini is TensorFlow; the first message that is used decides for all.
        protos.use_tensorflow_names()
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
            raise click.UsageError(_no_such_command(args[0]), error.ctx) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:  # such as --version
            raise click.UsageError(_no_such_command(error.option_name), ctx) from None


def _no_such_command(name: str) -> str:
    return no_such("command", name, COMMANDS, f"The commands are {', '.join(sorted(COMMANDS))}.")


@click.group(cls=LazyGroup, context_settings=HELP)
@click.version_option(__version__, prog_name="tfmini", message="%(prog)s %(version)s")
def main() -> None:
    """tfmini: TensorFlow 1.x's cluster model in Python."""


# ---- `tfmini version`: shows the installed versions ----------------------------------------------------------------

_DEPENDENCIES = ("numpy", "ml_dtypes", "pyzmq", "msgpack", "networkx", "protobuf")


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


@click.command(cls=Command, context_settings=HELP)
def version() -> None:
    """Show the versions of tfmini and of its dependencies."""
    click.echo(f"tfmini {__version__}")
    click.echo(f"Python {platform.python_version()} on {platform.platform(terse=True)}")
    for distribution in _DEPENDENCIES:
        click.echo(f"{distribution} {_installed(distribution)}")


# ---- `tfmini demo`: trains on a cluster of this machine, with data that a dependency brings --------------------------

_PS, _WORKERS, _STEPS = 2, 3, 200


@click.command(cls=Command, context_settings=HELP)
def demo() -> None:
    """Train a small model asynchronously on two ps and three workers of this machine.

    The model is a graph convolution. It learns how the members of a karate club divided in 1972 from the friendships
    of its 34 members (Zachary, 1977) and from the choice of two of them.
    """
    import networkx as nx
    import numpy as np

    import tfmini as tf

    tf.logging.set_verbosity(tf.logging.ERROR)
    club = nx.karate_club_graph()
    went = np.array([club.nodes[member]["club"] == "Officer" for member in club], np.int64)
    known = [0, 33]  # the instructor and the officer, who fell out
    friends = nx.to_numpy_array(club, weight=None) + np.eye(len(club))
    norm = friends.sum(0) ** -0.5
    spread = (friends * norm * norm[:, None]).astype(np.float32)

    def logits() -> Any:
        hidden = tf.nn.relu(tf.matmul(spread, tf.get_variable("W1", [len(club), 8])))
        return tf.matmul(spread, tf.matmul(hidden, tf.get_variable("W2", [8, 2])))

    def train(task: Any) -> float:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=went[known], logits=tf.gather(logits(), known))
        loss = tf.reduce_mean(losses)
        # Plain descent: a worker that is late by many steps throws Adam off, whose steps do not shrink with the loss.
        step = tf.train.GradientDescentOptimizer(0.3).minimize(loss, tf.train.get_or_create_global_step())
        last = 0.0
        with tf.train.MonitoredTrainingSession(task.target, is_chief=task.is_chief) as session:
            for _ in range(_STEPS):
                last, _ = session.run([loss, step])
        return float(last)

    with tf.LocalCluster(_PS, _WORKERS) as cluster:
        for index, loss in enumerate(cluster.run(train)):
            click.echo(f"worker {index} has made {_STEPS} steps; its last loss is {loss:.3f}")
        setter = tf.train.replica_device_setter(cluster=cluster.cluster_spec)
        with tf.Graph().as_default(), tf.device(setter), tf.Session(cluster.target) as session:
            found = session.run(tf.argmax(logits(), 1))  # of the variables that the workers have trained
    click.echo(f"{(found == went).sum()} of {len(club)} members are where they went when the club divided")
