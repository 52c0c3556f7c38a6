"""Tests of the learner in a user's program and of its service."""
