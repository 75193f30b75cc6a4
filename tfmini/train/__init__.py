"""Training: optimizers, schedules, averages, savers, hooks and sessions."""
