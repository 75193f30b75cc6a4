"""Devices that compile, by JAX: GPU, TPU and XLA_CPU. Nothing here is imported before such a device is used."""
