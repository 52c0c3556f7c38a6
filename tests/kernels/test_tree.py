"""The tree of sums: the same bits for own and for shared records, for any tiles."""

import numba
import numpy as np
import pandas as pd
import pytest

from exaul import Sweep, run
from exaul.engine.logs.log import Records
from exaul.engine.registry import backend_of
from exaul.kernels.learners.learner import rates_of_horizon
from exaul.kernels.native import backend
from tests import games
from tests.games import LEARNERS, OBLIVIOUS
from tests.processes import python, variables

GAME = {"learners": ("exaul", "exaul-known", "ew", "exp3-ix", "aci-rank"), "checkpoints": 7}


@pytest.mark.parametrize("fields", [{}, {"precision": "float32", "learners": ("exaul", "exp3-ix", "exaul-known")}])
def test_a_copy_has_the_same_bits_whether_or_not_others_share_its_records(fields):
    """Of five alphas the copies of a trial share a path; of one, three at most of the 32 read its records."""
    game, alphas = GAME | {"trials": 12, "horizon": 2300, "arms": 60} | fields, (0.02, 0.05, 0.1, 0.2, 0.4)
    together = run(Sweep(**game, alphas=alphas)).trials
    for alpha in alphas:
        expected = together[together["alpha"] == alpha].reset_index(drop=True)
        pd.testing.assert_frame_equal(run(Sweep(**game, alphas=(alpha,))).trials, expected, check_exact=True)


def test_tiles_change_no_bit(monkeypatch):
    """Three copies read the records of a trial, too few to share them, but four those of the first: one pads."""
    game = GAME | {"horizon": 1500, "arms": 40, "trials": 21, "alphas": (0.05, 0.1, 0.3)}
    expected = run(Sweep(**game)).trials
    monkeypatch.setattr(backend, "LARGEST_TILES", (5, 3))
    for threads in (1, 3, 7):
        monkeypatch.setattr(backend, "processor_count", lambda threads=threads: threads)
        pd.testing.assert_frame_equal(run(Sweep(**game)).trials, expected, check_exact=True)


PROGRAM = """
import hashlib
from tests import games
from tests.kernels.test_backends import COPIES, simulate

digest = hashlib.sha256()
for name in games.WEIGHTED:
    for streams in (COPIES, 1):
        for precision in ("float64", "float32"):
            game = simulate(name, "native", "levels", 1000, 100, precision=precision, streams=streams)
            digest.update(b"".join(x.tobytes() for x in game))
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_the_width_of_vectors_changes_no_bit(tmp_path):
    """Of decisions and losses, whose charges are divided by P; compiled for processors with FMA."""
    host = numba.core.codegen.get_host_cpu_features().split(",")
    if "+fma" not in host:
        pytest.skip("no processor with FMA")
    kinds = [("haswell", ""), ("haswell", "+prefer-128-bit")]
    kinds += [("skylake-avx512", "+prefer-512-bit")] if "+avx512f" in host else []
    digests = set()
    for name, features in kinds:
        env = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "XDG_CACHE_HOME": str(tmp_path)}
        digests.add(python(PROGRAM, env=variables(**env)).stdout)
    assert len(digests) == 1


def test_rounding_draws_no_arm_beyond_the_last():
    """At the largest uniform, the last of three arms; the sum of the weights in float32 may be rounded upwards."""
    learner, rounds, copies = games.LEARNERS["exp3-ix"], 16, 32
    records = np.ones((rounds, 1)), np.zeros((rounds, 1)), np.full((rounds, copies), 1 - 2.0**-53)
    rates = rates_of_horizon(learner, 256, 3, False, None, None)
    loop = backend_of(learner, "native", "float32")
    numbers = np.linspace(0.1, 0.9, copies), np.ones(copies), np.zeros(copies, np.int32)
    state, _ = games.simulate(learner.rule, loop, 3, 0, *records, rates, *numbers)
    assert (state[:, :2] == 0).all()


# No compiled loop reads or writes outside its arrays; Numba checks this only on request.

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
        run_sweep(("exaul", "ew", "aci-rank"), pools=environment.pool_count, environment=name, horizon=50)


@pytest.mark.slow
def test_indices_are_within_their_arrays(tmp_path):
    """Compiled anew, with checks; an index that is not raises there."""
    checked = variables(NUMBA_BOUNDSCHECK="1", XDG_CACHE_HOME=str(tmp_path))
    python("from tests.kernels.test_tree import run_everything; run_everything()", env=checked)
