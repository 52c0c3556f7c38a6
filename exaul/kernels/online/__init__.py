"""Simulate one copy, one round at a time, in two halves: decide, then learn from the feedback.

This is how a program uses a learner: feedback may come at any time after an answer. ``rounds.py`` has one pair of
functions for each type of rule, which ``exaul.Abstainer`` calls (``one.py``). A round takes O(H) steps.
"""

from exaul.kernels.online.one import OnlineCopy, compile_copy
from exaul.kernels.online.rounds import OnlineDecision, OnlineRule, compile_rule

__all__ = ["OnlineCopy", "OnlineDecision", "OnlineRule", "compile_copy", "compile_rule"]
