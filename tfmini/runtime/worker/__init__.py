"""The worker service: registered graphs, running steps, tensors that arrive early."""
