"""Building blocks of models (``tf.layers``, ``tf.losses``, ``tf.metrics``, recurrent cells, ``tf.contrib.layers``)."""
