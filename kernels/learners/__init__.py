"""Learners, one file each; ``learner.py`` says what a learner is."""
