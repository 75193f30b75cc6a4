"""Recurrent networks (``tf.nn.rnn_cell``, ``tf.nn.dynamic_rnn``): cells and their unrolling over time."""
