"""The live page of a running cluster: history, folding, charts, and the server that sends them to browsers."""
