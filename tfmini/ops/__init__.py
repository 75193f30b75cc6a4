"""All ops: each family has a file of its own, from declaration to kernel and gradient.

An op exists once its file has been imported. `tfmini.graph.registry.OPS` imports it when the op is first looked up,
with the table of `tfmini.op_homes`; so a program imports only the families that it uses.
"""
