"""Learners, one file each. ``learner.py`` says what one is; several share ``rates.py`` and ``descent.py``."""
