"""Proposes where the variables of a model go: the search, which knows no predictor, and what it asks of a script."""
