"""Learners, one file each; ``learner.py`` says what a learner is, ``rates.py`` has the rates that several share."""
