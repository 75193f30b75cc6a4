"""Compilation: the graph of one task (`TaskGraph`) becomes a `Program`.

A program is a list of *segments*. A segment is straight-line Python, generated once, that needs
nothing more from outside once it has started; its nodes are those that depend on the same set of
arrivals: groups of tensors from other tasks, and answers of ops that wait (and on the same devices, if the task
computes on several: see `Lowering.tell_devices_apart`). A step (see
`executor.dataflow_run`) starts a segment when its predecessors are done and its arrivals are there. What a
segment leaves for another, and what comes in and goes out, lies in a flat list of slots.
`lowering` decides what each node becomes, `layout` what belongs to which segment, `loops` what
becomes of while loops, and `codegen` writes the text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.graph.device_types import type_of
from tfmini.graph.liveness import contract, has_flow
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.compiler.codegen import KernelModel
from tfmini.runtime.compiler.layout import lay_out
from tfmini.runtime.compiler.levels import Level, Program
from tfmini.runtime.compiler.loops import lower_loop
from tfmini.runtime.compiler.lowering import Compilation, Lowering
from tfmini.runtime.resources import Resources
from tfmini.runtime.trace import TraceTable


def compile_program(
    graph: TaskGraph,
    *,
    resources: Resources,
    device_type: str = "CPU",
    fold_constants: bool = True,
    traced: bool = False,
    threads: bool = False,
    kernels: dict[str, Callable[..., Any]] | None = None,
    model: KernelModel | None = None,
    wholes: bool = True,
) -> Program:
    """Compiles the graph of one task.

    Args:
      resources: where kernels that ask for it find their state.
      fold_constants: compute constant parts now.
      traced: note when each node runs; the step must have a trace.
      threads: kernels that may block (Python functions) run in threads of their own.
      kernels: node -> function, of the kernels with a state of their own that programs share; they are added.
      model: takes the place of the kernels in a simulation.
      wholes: let devices that compile have loops and conditionals as a whole (see `whole`).

    Raises:
      InvalidArgumentError: when an op has no kernel here.
      UnimplementedError: for a loop of a form that `tf.while_loop` does not make.
    """
    if model is not None and (known := model.known(graph)) is not None:
        return known
    kernels = {} if kernels is None else kernels
    if any(type_of(device).compiles for device in {node.device for node in graph.nodes.values()}):
        from tfmini.runtime.compiler.stretches import with_stretches  # late: no CPU needs it

        def drive(part: TaskGraph) -> Callable[[], Program]:
            program = compile_program(
                part, resources=resources, device_type=device_type, fold_constants=fold_constants, kernels=kernels,
                wholes=False,
            )  # fmt: skip

            def bound() -> Program:
                program.bind(resources)
                return program

            return bound

        graph = with_stretches(graph, kernels, drive if wholes else None)
    trace = TraceTable() if traced else None
    shared = Compilation(graph, resources, device_type, fold_constants, lower_loop, trace, threads, kernels, model)
    lowering = _lowered(shared)
    level = lay_out(lowering)
    if trace is not None:
        trace.complete(graph, shared.waits, lowering.silent())
    program = _program(level, lowering)
    return program if model is None else model.program(program, graph)


def _lowered(shared: Compilation) -> Lowering:
    nodes = shared.graph.nodes
    outer, loops = contract(nodes) if has_flow(nodes) else (nodes, {})
    lowering = Lowering(shared, outer, loops)
    lowering.tell_devices_apart()
    lowering.run()
    return lowering


def _program(level: Level, lowering: Lowering) -> Program:
    shared = lowering.compilation
    graph = shared.graph
    fetches: list[int] = []
    for name, _ in graph.fetches:
        source = shared.fetch_sources[name]
        slot = lowering.slots[source]
        if source in shared.constants:
            level.template[slot] = shared.constants[source]
        fetches.append(slot)
    return Program(
        **vars(level), feeds=shared.feed_count, fetches=fetches, keeps_feeds=shared.keeps_feeds,
        sends=shared.send_tasks, states=shared.states, namespace=shared.namespace, node_count=len(graph.nodes),
        waits=shared.waits, loops=shared.loops, loop_groups=shared.loop_groups,
        uncertain=bool(shared.uncertain_fetches), uncertain_sends=shared.uncertain_sends, trace=shared.trace,
    )  # fmt: skip
