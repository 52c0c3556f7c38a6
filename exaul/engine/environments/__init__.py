"""Environments, one file each; ``oblivious.py`` and ``adaptive.py`` say what an environment is.

The table of their names is in ``exaul.engine.registry``.
"""
