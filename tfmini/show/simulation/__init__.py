"""The simulator: predicts how long a step takes on machines and links that are described by a profile."""
