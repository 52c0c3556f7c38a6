"""The experiment: sweeps of learners over environments, and what they show.

``from engine import Sweep, run``: ``run(Sweep(...))`` plays a sweep and returns its tables; ``resume(folder)``
goes on with one that was interrupted, ``rerun(folder)`` plays one again.
"""

from engine.errors import BadInput
from engine.sweep import Result, Sweep, rerun, resume, run

__all__ = ["BadInput", "Result", "Sweep", "rerun", "resume", "run"]
