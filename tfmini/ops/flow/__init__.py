"""Control flow: conds, loops, tensor arrays, and their gradients."""
