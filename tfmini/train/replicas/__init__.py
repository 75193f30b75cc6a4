"""Data-parallel training on several workers: synchronous replicas and all-reduce."""
