"""Input pipelines (``tf.data``): dataset and iterator ops, and the stages that their kernels run.

Nothing is imported here: the modules load at the first use of a name or an op.
"""
