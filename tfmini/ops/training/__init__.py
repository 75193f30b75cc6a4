"""The update ops of the optimizers (``ApplyAdam`` and the like)."""
