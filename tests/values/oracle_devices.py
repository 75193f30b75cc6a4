"""TensorFlow's results for device strings and clusters. (Runs in its process, see `tests.oracle`.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def answers(tf: Any, asked: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """One answer to each text, pair and cluster in {"specs", "merges", "clusters"}; None where TensorFlow raises."""
    parsed = tf.DeviceSpec.from_string

    def merged(pair: tuple[str, str]) -> str:
        outer, inner = map(parsed, pair)
        return outer.make_merged_spec(inner).to_string()

    functions = {"specs": lambda text: parsed(text).to_string(), "merges": merged,
                 "clusters": lambda jobs: described(tf.train.ClusterSpec(jobs))}  # fmt: skip
    return {name: [answer(function, argument) for argument in asked[name]] for name, function in functions.items()}


def described(spec: Any) -> dict[str, Any]:
    """The public content of a ClusterSpec of either side."""
    message = spec.as_cluster_def().SerializeToString(deterministic=True)
    return {"text": str(spec), "dict": repr(spec.as_dict()), "message": message}


def answer(function: Callable[[Any], Any], argument: Any) -> Any:
    """The result of the function, or None if it raises an error."""
    try:
        return function(argument)
    except (ValueError, TypeError):
        return None
