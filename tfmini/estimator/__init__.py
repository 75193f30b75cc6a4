"""Estimators (``tf.estimator``): training, evaluation, prediction and export of model functions, alone or in a cluster.

Nothing is imported here: the modules load at the first use of a name.
"""
