"""Completion gates: one gate a file, and the ordered tuple of them."""
