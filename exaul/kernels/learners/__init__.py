"""Learners, one file each. ``learner.py`` defines their types; several share ``rates.py`` and ``descent.py``."""
