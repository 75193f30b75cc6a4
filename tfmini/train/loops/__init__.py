"""Training and evaluation loops, and the train ops of ``tf.contrib`` and ``slim``."""
