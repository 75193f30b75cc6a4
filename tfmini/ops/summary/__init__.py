"""Summary ops and the summary writers of a task (``tf.summary``)."""
