"""No compiled loop reads or writes outside its arrays; Numba checks this only on request."""

import numpy as np
import pytest

from exaul import Sweep, run
from exaul.engine.logs.log import Records
from tests.games import LEARNERS, OBLIVIOUS
from tests.processes import python, variables

OWN = "experiments.impostors:coin"


def run_sweep(learners, levels=0, ratings=False, pools=1, horizon=700, **fields):
    """Some copies of learners, on records of scores that may tie and errors that may be ratings."""
    rng = np.random.default_rng(horizon)
    records = []
    for size in (50, 63)[:pools]:
        scores = rng.random(size)
        scores = np.round(scores * levels) / levels if levels else scores
        errors = rng.random(size) if ratings else (rng.random(size) > scores).astype(float)
        records.append(Records("records", scores, errors, 0, None))
    eta = {"eta": 0.5} if OWN in learners else {}
    run(Sweep(**{"trials": 19, "arms": 77, "horizon": horizon, "learners": learners} | eta | fields), records)


def run_everything():
    """Run all loops of a CPU: every learner and environment."""
    names = (*LEARNERS, OWN)
    for horizon, arms, levels in ((1, 2, 0), (700, 2, 3), (700, 1000, 0), (300, 77, 3), (1300, 513, 0)):
        for ratings in (False, True):
            more = {"alphas": (0.05, 0.3), "lambdas": (1.0, 30.0)}
            run_sweep(names, levels, ratings, horizon=horizon, arms=arms, **more)
    for name, environment in OBLIVIOUS.items():
        run_sweep(("exaul", "ew", "aci-rank"), pools=environment.sources, environment=name, horizon=50)


@pytest.mark.slow
def test_indices_are_within_their_arrays(tmp_path):
    """Compiled anew, with checks; an index that is not raises there."""
    checked = variables(NUMBA_BOUNDSCHECK="1", XDG_CACHE_HOME=str(tmp_path))
    python("from tests.kernels.test_indices import run_everything; run_everything()", env=checked)
