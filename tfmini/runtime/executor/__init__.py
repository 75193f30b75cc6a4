"""Runs of a partition on its task, one driver per kind of partition."""
