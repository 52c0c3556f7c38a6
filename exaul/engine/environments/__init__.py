"""Worlds, one file each; ``oblivious.py`` and ``adaptive.py`` say what a world is.

The table of their names is in ``exaul.engine.registry``.
"""
