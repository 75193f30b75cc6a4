"""Devices that compile, by JAX: GPU, TPU and XLA_CPU. Nothing here is imported before such a device is used."""


def __getattr__(name: str) -> object:
    # `tf.xla` is this package. TensorFlow has `tf.xla.experimental` alone below it (`tfmini.ops.flow.function`).
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tfmini.out_of_scope import alternative

    way = alternative(f"xla.{name}")
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: tf.xla.{name} is out of tfmini's scope; use {way}"
    )
