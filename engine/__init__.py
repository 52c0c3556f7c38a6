"""The experiment: sweeps of learners over environments, and what they show.

``from engine import Sweep, run``: ``run(Sweep(...))`` plays a sweep and returns its tables.
"""

from engine.errors import BadInput
from engine.sweep import Result, Sweep, run

__all__ = ["BadInput", "Result", "Sweep", "run"]
