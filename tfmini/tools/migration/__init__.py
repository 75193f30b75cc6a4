"""What of a program will not run on tfmini and today's Python, found in its text; nothing of it is run.

- `sources`: a text as a tree, whether it is written for Python 3 or Python 2;
- `uses`: what the names of a tree denote, through imports and aliases;
- `known`: what a dotted name is on tfmini, in Python and in its packages, and what became of it;
- `checks`: what will not run, of one source.
"""
