"""Backends: ways to store weights and to compute steps, one file each. ``backend.py`` defines the protocol."""
