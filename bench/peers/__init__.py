"""The same script on other agent frameworks' Temporal integrations.

Each peer's module runs in an environment of its own (`install.py`); only its own process imports it.
"""
