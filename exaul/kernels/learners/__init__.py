"""Learners, one file each. ``learner.py`` defines their types, and their states before round 1."""
