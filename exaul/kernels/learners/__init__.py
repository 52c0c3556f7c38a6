"""Learners, one file each. ``learner.py`` defines their types, and ``start.py`` what they begin with."""
