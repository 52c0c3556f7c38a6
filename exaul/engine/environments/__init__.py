"""Environments, one file each; ``oblivious.py`` and ``adaptive.py`` define the two protocols."""
