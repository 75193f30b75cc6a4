"""What a program is: op declarations, graphs, scopes, gradients, and graph-to-graph passes."""
