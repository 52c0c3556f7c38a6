"""Learners, one file each. ``learner.py`` defines their types, and what they begin with."""
