"""A batched Monte-Carlo engine for online conformal abstention.

``from exaul import Sweep, run``: ``run(Sweep(...))`` plays a sweep and returns its tables; ``resume(folder)``
goes on with an interrupted one, ``rerun(folder)`` plays one again, ``merge(folders)`` joins shards,
``scatter(Sweep(...), executor, parts)`` plays one on many workers, and ``run_each(Sweep(...))`` every trace of
some logs. ``Abstainer`` is a learner in a program of one's own. Each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exaul.engine.abstainer import Abstainer as Abstainer
    from exaul.engine.abstainers import Abstainers as Abstainers
    from exaul.engine.checks import BadInput as BadInput
    from exaul.engine.run import Result as Result
    from exaul.engine.run import merge as merge
    from exaul.engine.run import rerun as rerun
    from exaul.engine.run import resume as resume
    from exaul.engine.run import run as run
    from exaul.engine.scatter import rescatter as rescatter
    from exaul.engine.scatter import scatter as scatter
    from exaul.engine.sweep import Sweep as Sweep
    from exaul.engine.traces import run_each as run_each

__version__ = "0.1.0"

_HOMES = {
    "Abstainer": "abstainer",
    "Abstainers": "abstainers",
    "BadInput": "checks",
    "Result": "run",
    "Sweep": "sweep",
    "merge": "run",
    "rerun": "run",
    "resume": "run",
    "run": "run",
    "run_each": "traces",
    "rescatter": "scatter",
    "scatter": "scatter",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"exaul.engine.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
