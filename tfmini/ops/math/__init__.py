"""Arithmetic, comparisons, reductions, segments, searches and Fourier transforms."""
