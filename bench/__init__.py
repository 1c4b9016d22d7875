"""Benchmarks of the engine against a bare workflow that makes the same activity calls.

`python -m bench` starts its own Temporal server, measures every contestant on it in turn, and
prints one table. The figures that count are ratios to the floor within one run: absolute times
depend on the machine, ratios far less.
"""
