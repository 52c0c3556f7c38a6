"""A batched Monte-Carlo engine for online conformal abstention.

``from exaul import Sweep, run``: ``run(Sweep(...))`` plays a sweep and returns its tables; ``resume(folder)``
goes on with an interrupted one, ``rerun(folder)`` plays one again, ``merge(folders)`` joins shards,
``scatter(Sweep(...), executor, parts)`` plays one on many workers, and ``run_each(Sweep(...))`` every trace of
some logs. ``Abstainer`` is a learner in a program of one's own. Each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from exaul.serving.abstainer import Abstainer as Abstainer
    from exaul.serving.abstainers import Abstainers as Abstainers

__version__ = "0.1.0"

_HOMES = {
    "Abstainer": "serving.abstainer",
    "Abstainers": "serving.abstainers",
    "BadInput": "engine.checks",
    "Result": "engine.run",
    "Sweep": "engine.sweep",
    "merge": "engine.run",
    "rerun": "engine.run",
    "resume": "engine.run",
    "run": "engine.run",
    "run_each": "engine.traces",
    "rescatter": "engine.scatter",
    "scatter": "engine.scatter",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"exaul.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
