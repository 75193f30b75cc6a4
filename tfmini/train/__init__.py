"""Training: optimizers, checkpoints, summaries, hooks, input queues, sessions, replicas and loops."""
