"""Modules outside TensorFlow's core that old scripts import: flags, logging, files, tests, MNIST, Horovod, aliases."""
