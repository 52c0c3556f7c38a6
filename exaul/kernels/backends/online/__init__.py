"""The online backend: one copy, one round at a time, cut in two: a decision, and what is learned from its feedback.

It is the game as a program of one's own plays it, where a thumb may come at any time after the answer. There is one
pair of functions for each type of rule (``rounds.py``), and two users: a simulation, which calls one after the
other (``copies.py``), and ``exaul.Abstainer`` (``one.py``). Where every feedback arrives before the next question,
both do the same in the same order, to the same bits. A round takes O(H) steps.
"""

from exaul.kernels.backends.online.copies import make
from exaul.kernels.backends.online.one import OnlineCopy, compile_copy
from exaul.kernels.backends.online.rounds import OnlineDecision, OnlineRule, compile_rule

__all__ = ["OnlineCopy", "OnlineDecision", "OnlineRule", "compile_copy", "compile_rule", "make"]
