"""Environments, one file each. ``oblivious.py`` and ``adaptive.py`` define the protocols, ``registry.py`` the names."""
