"""Event files, their writers and readers, ``tf.contrib.summary``, and timelines."""
