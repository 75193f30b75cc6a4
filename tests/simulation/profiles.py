"""A small profile for tests: round numbers."""

from __future__ import annotations

import tomllib

from tfmini.simulation.profile import Profile, parse_profile

TEXT = """
[machines.plain]
cores = 2
memory_gb = 8
step_us = 100
part_us = 30
start_us = 20
segment_us = 5

[machines.plain.kernels]
matmul = [[1000, 2], [1000000, 100]]
elementwise = [[64, 1], [1000000, 300]]
update = [[64, 1], [1000000, 500]]

[links.local]
latency_us = 15
send_us = 10
receive_us = 20
us_per_mb = 100

[links.tcp]
gbit_per_s = 8
latency_us = 50
send_us = 20
receive_us = 30
us_per_mb = 200
"""


def plain() -> Profile:
    """Two cores, one curve per important class."""
    return parse_profile(tomllib.loads(TEXT))
