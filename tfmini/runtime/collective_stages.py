"""The stages of one member of a group whose ranks all share memory: which is whose, and who must be told.

A collective keeps its stage from step to step, so that in the steady state ranks find each other's parts without
a message. When all stages of a member take more than `KEEP_BYTES`, those that have been idle longest are given up;
their collectives get new ones, and the other ranks are told of them, when they run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tfmini.collectives.shared_reduce import stage_bytes
from tfmini.collectives.stages import COPIED, WINDOW_BITS, Stage
from tfmini.runtime.collective_memory import Arena, Bytes

KEEP_BYTES = 16 << 20


@dataclass
class Channel:
    """What a member knows of one collective.

    Attributes:
      stages: of all ranks, by rank.
      is_small: the latest exchange was of a small tensor.
    """

    stages: list[Stage | None]
    offset: int = 0
    size: int = 0
    is_small: bool = False
    count: int = 0
    is_busy: bool = False
    outgrown: list[tuple[int, int]] = field(default_factory=list)


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
        """What is known of a collective."""
        found = self._channels.get(instance)
        if found is None:
            found = self._channels[instance] = Channel([None] * len(self._neighbours))
        return found

    def place(self, instance: int, sender: int, serial: int, offset: int, size: int) -> None:
        """Another rank has told where its stage is.

        Raises:
          ValueError: it cannot be there.
        """
        memory = self._neighbours[sender][offset : offset + size]
        if offset < 0 or len(memory) != size or size < 4096 or offset % 4096:
            raise ValueError(f"rank {sender} has no stage at {offset}")
        self.channel(instance).stages[sender] = Stage(memory, serial)

    def open(self, instance: int, nbytes: int, count: int) -> tuple[Channel, tuple[int, int, int] | None]:
        """Prepares the own stage for an exchange; with it (serial, offset, size) when the others must be told of it.

        Raises:
          ResourceExhaustedError: there is no memory.
        """
        channel = self.channel(instance)
        channel.is_busy, channel.count = True, count
        self._channels[instance] = self._channels.pop(instance)
        needed = stage_bytes(nbytes)
        if channel.stages[self._rank] is not None and channel.size >= needed:
            return channel, None
        if channel.size:
            # Others may still read the exchange before.
            channel.outgrown.append((channel.offset, channel.size))
        self._make_room(needed)
        channel.offset, channel.size = self._arena.take(needed)
        self._bytes += channel.size
        stage = Stage(self._arena.block(channel.offset, channel.size), self._arena.serial())
        stage.open(count)
        channel.stages[self._rank] = stage
        return channel, (stage.serial, channel.offset, channel.size)

    def _make_room(self, needed: int) -> None:
        for channel in list(self._channels.values()):
            if self._bytes + needed <= KEEP_BYTES:
                return
            if channel.size and not channel.is_busy and self._is_idle(channel):
                self._give_back(channel)

    def _is_idle(self, channel: Channel) -> bool:
        """Whether all others are through with the latest exchange."""
        over = channel.count + 1 << WINDOW_BITS
        stages = [stage for rank, stage in enumerate(channel.stages) if rank != self._rank]
        # One whose rank has given it up has gone on as well.
        return all(stage is not None and (stage.words[COPIED] >= over or not stage.is_valid) for stage in stages)

    def _give_back(self, channel: Channel) -> None:
        own = channel.stages[self._rank]
        if own is not None:
            own.words[0] = 0  # for nobody
        for offset, size in [(channel.offset, channel.size), *channel.outgrown]:
            if size:
                self._arena.give_back(offset, size)
                self._bytes -= size
        channel.stages[self._rank] = None
        channel.offset = channel.size = 0
        channel.outgrown.clear()

    def close(self) -> None:
        """Gives all back."""
        for channel in self._channels.values():
            self._give_back(channel)
        self._channels.clear()
