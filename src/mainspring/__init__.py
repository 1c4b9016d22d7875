"""Mainspring: agent runs as Temporal workflows. Import the submodules; this file imports nothing."""
