"""What a running cluster does now: the data model, what follows from it, and how it is asked for."""
