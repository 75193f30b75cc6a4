"""The stages of all ranks of a group that shares memory, and which ranks need a notice of a new stage.

A collective keeps its stage from step to step, so that in the steady state ranks find each other's parts without
a message. When all stages of a member take more than `KEEP_BYTES`, those that have been idle longest are released;
their collectives get new ones, announced to the other ranks, when they run again. Others may still read from the
old stage, so each run of a collective uses the stages that were announced up to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tfmini.collectives.shared_moves import Moves
from tfmini.collectives.stages import COPIED, WINDOW_BITS, RankStage
from tfmini.runtime.collectives.memory import Arena, Bytes

KEEP_BYTES = 64 << 20


@dataclass
class Channel:
    """The state of one collective at a member.

    Attributes:
      stages: of all ranks, by rank, as the latest run here goes by them.
      announced: (rank, count, stage) of other ranks, for later runs.
      count: the number of the latest run here, from 0. Another graph may use the instance for a collective that goes by
        messages: that is no run.
      moves: how the latest run went.
    """

    stages: list[RankStage | None]
    announced: list[tuple[int, int, RankStage]] = field(default_factory=list)
    offset: int = 0
    size: int = 0
    moves: type[Moves] | None = None
    count: int = -1
    is_busy: bool = False
    outgrown: list[tuple[RankStage, int, int]] = field(default_factory=list)

    def begin(self) -> None:
        """A run begins: it goes by the stages that have been announced for it."""
        self.count, self.is_busy = self.count + 1, True
        self.stages = list(self.stages)  # the run before keeps its own
        for rank, since, stage in self.announced:
            if since <= self.count:
                self.stages[rank] = stage
        self.announced = [entry for entry in self.announced if entry[1] > self.count]


class Stages:
    """See the module.

    Args:
      arena: of this task; ``neighbours``: of all ranks (its own entry is not used).
    """

    def __init__(self, rank: int, arena: Arena, neighbours: list[Bytes]) -> None:
        self._rank, self._arena, self._neighbours = rank, arena, neighbours
        self._channels: dict[int, Channel] = {}  # those used last at the end
        self._bytes = 0

    def channel(self, instance: int) -> Channel:
        """The state of a collective at this member."""
        found = self._channels.get(instance)
        if found is None:
            found = self._channels[instance] = Channel([None] * len(self._neighbours))
        return found

    def place(self, instance: int, count: int, sender: int, serial: int, offset: int, size: int) -> bool:
        """Another rank has told where its stage is from its ``count``-th run on; whether the latest run here uses it.

        Raises:
          ValueError: it cannot be there.
        """
        memory = self._neighbours[sender][offset : offset + size]
        if offset < 0 or len(memory) != size or size < 4096 or offset % 4096:
            raise ValueError(f"rank {sender} has no stage at {offset}")
        channel, stage = self.channel(instance), RankStage(memory, serial)
        if count > channel.count:
            channel.announced.append((sender, count, stage))
            return False
        channel.stages[sender] = stage
        return True

    def open(self, instance: int, needed: int) -> tuple[Channel, tuple[int, int, int] | None]:
        """Prepares a run, whose stage takes so many bytes; with (serial, offset, size) when the others must be told.

        Raises:
          ResourceExhaustedError: there is no memory.
        """
        channel = self.channel(instance)
        channel.begin()
        self._channels[instance] = self._channels.pop(instance)
        own = channel.stages[self._rank]
        if own is not None:
            if channel.size >= needed:
                return channel, None
            # Others may still read the run before.
            channel.outgrown.append((own, channel.offset, channel.size))
        self._make_room(needed)
        channel.offset, channel.size = self._arena.take(needed)
        self._bytes += channel.size
        stage = RankStage(self._arena.block(channel.offset, channel.size), self._arena.serial())
        stage.open(channel.count)
        channel.stages[self._rank] = stage
        return channel, (stage.serial, channel.offset, channel.size)

    def _make_room(self, needed: int) -> None:
        for channel in list(self._channels.values()):
            if self._bytes + needed <= KEEP_BYTES:
                return
            if channel.size and not channel.is_busy and self._is_idle(channel):
                self._give_back(channel)

    def _is_idle(self, channel: Channel) -> bool:
        """Whether all others are through with the latest run."""
        over = channel.count + 1 << WINDOW_BITS
        stages = [stage for rank, stage in enumerate(channel.stages) if rank != self._rank]
        # One whose rank has given it up has gone on as well.
        return all(stage is not None and (stage.words[COPIED] >= over or not stage.is_valid) for stage in stages)

    def _give_back(self, channel: Channel) -> None:
        own = channel.stages[self._rank]
        for stage, offset, size in [*channel.outgrown, *([(own, channel.offset, channel.size)] if own else [])]:
            stage.release()
            self._arena.give_back(offset, size)
            self._bytes -= size
        channel.stages[self._rank] = None
        channel.offset = channel.size = 0
        channel.outgrown.clear()

    def invalidate(self, for_good: bool) -> None:
        """Invalidates all stages, because the tensors of unfinished runs may be freed at any time."""
        for channel in self._channels.values():
            own = channel.stages[self._rank]
            if own is not None and (channel.is_busy or not for_good):
                own.release()

    def close(self, for_good: bool) -> None:
        """Gives all back.

        Args:
          for_good: the arena is given up, too. Its blocks are not reused, so others may finish reading complete data.
        """
        for channel in self._channels.values():
            if channel.is_busy or not for_good:
                self._give_back(channel)
        self._channels.clear()
