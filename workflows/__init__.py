"""Deterministic code of a run: pure decisions, and the workflow that applies them."""
