"""Linear algebra: decompositions, solvers, functions of matrices."""
