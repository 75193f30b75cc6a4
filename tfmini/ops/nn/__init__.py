"""Neural networks: convolution, pooling, normalization, activations, losses (``tf.nn``)."""
