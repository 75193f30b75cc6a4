"""How it runs: session, master, worker, server; programs, steps and resources."""
