"""How a task runs collectives: groups, exchanges, shared memory."""
