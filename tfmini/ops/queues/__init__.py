"""State objects that ops wait for: queues, barriers, staging areas, accumulators, mutexes."""
