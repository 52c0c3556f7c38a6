"""Check whether a backend decides as ``dense`` in float64 does: a device uses it only after this check.

A simulation returns sums, not decisions. With a checkpoint after every round, their differences are the decisions.
The check of a device simulates a few copies briefly; ``exaul verify`` simulates those of a sweep.
"""

import hashlib
import sys
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine import registry
from exaul.engine.environments.oblivious import gradual_shift
from exaul.engine.manifest import device, engine_hash, module_hash, versions
from exaul.engine.registry import backend_of
from exaul.engine.simulation.chunks import TILE, NativeSimulation, TrialRecords, make_chunks, select_rates
from exaul.kernels.cache import cache_folder
from exaul.kernels.game import SPAN, Copies, compute_costs
from exaul.kernels.learners.learner import Learner, rates_of_horizon, start_copies, start_of
from exaul.kernels.metrics import Floats
from exaul.kernels.native import NativeBackend
from exaul.kernels.records import Pool, make_streams

CHECK_ARMS, CHECK_COPIES = 100, TILE  # of the check of a device, which has a span of rounds (chosen)
# Records of the pools. 300 are used up and reshuffled within the check, 2000 are not; the shuffle of the
# smaller one takes more passes.
POOL_SIZES = 300, 2000

# Two programs with probabilities P and P' of answering decide differently with probability |P - P'| in a round, and
# then play different games. So the number of copies that part from ``dense``, divided by the decisions until they
# do, estimates the mean error of P (and, where an arm is drawn, what another arm with the same decision changes
# later). The largest estimate that is accepted is 0 in float64; in float32, some seventy times the mean error of P
# that rounding makes (measured, up to 7e-8).
TOLERANCE = {"float64": 0.0, "float32": 5e-6}

_reported: set[str] = set()  # reasons of failure that were printed in this process


def count_parted(decisions: NDArray[Any], reference: NDArray[Any]) -> tuple[int, int]:
    """Return the copies that decide differently in some round, and the decisions of all copies until they do.

    Args:
        decisions: [rounds, copies], the decisions of each round, or their sums up to each.
        reference: the same, on the other backend.
    """
    differs = decisions != reference
    is_parted = differs.any(axis=0)
    return int(is_parted.sum()), int(np.where(is_parted, differs.argmax(axis=0) + 1, len(differs)).sum())


def simulate_briefly(learner: Learner[Any], backend: Any, is_imperfect: bool = False) -> tuple[Floats, Any]:
    """Simulate 32 copies in 1,024 rounds of random records, by the same simulations and chunks as a sweep.

    Return the decisions [1024, 32], 0 for an abstention, 1 for a right answer and 2 for a wrong one; and the state.
    """
    rng, number = np.random.default_rng(0), np.arange(CHECK_COPIES, dtype=np.int32)
    pools = []
    for size in POOL_SIZES:
        scores = rng.random(size)
        cuts = np.clip((scores * CHECK_ARMS).astype(np.int32), 1, CHECK_ARMS - 1)
        pools.append(Pool(cuts, (rng.random(len(scores)) < 1 - scores).astype(np.float64)))
    streams = make_streams(gradual_shift.choose_pool, True, pools, SPAN, 0, number)
    alpha = rng.choice([0.05, 0.2], CHECK_COPIES)
    costs, scales = compute_costs(alpha, np.full(CHECK_COPIES, 32.0)), np.ones((2, CHECK_COPIES))
    copies = Copies(alpha, *costs, number, number, *scales)
    rates = rates_of_horizon(learner, SPAN, CHECK_ARMS, False, None, None)
    import jax

    with jax.enable_x64(True):
        records = TrialRecords(streams, 0, number, is_imperfect)
        first = start_of(learner.rule, CHECK_ARMS, alpha)
        start = start_copies(learner.rule, CHECK_ARMS, first, number, 0 * number)
        (chunk,) = make_chunks(np.arange(1, SPAN + 1), CHECK_COPIES)
        setup, host_records = (backend, copies, start, CHECK_ARMS), None  # devices make their own records
        simulation: Any
        if isinstance(backend, NativeBackend):
            simulation, host_records = NativeSimulation(*setup, streams.stream_count), records.make(chunk)
        else:
            from exaul.engine.simulation.jax_chunks import JaxSimulation

            simulation = JaxSimulation(*setup, records)
        simulation.submit(chunk, select_rates(rates, chunk.block_numbers), host_records)
        sums = simulation.collect()
    outcomes = (sums.answered + sums.wrong)[chunk.checkpoint_rounds > 0]
    return np.diff(outcomes, axis=0, prepend=0), simulation.state


@cache
def device_agrees(learner: Learner[Any], name: str, backend_name: str, precision: str) -> bool:
    """Return whether a learner, called ``name``, decides on a backend of this device as on ``dense`` in float64.

    The result is printed, and cached on disk for this device, these versions and sources. After an exception (for
    example, a compiler does not know the device) it is False, and not cached on disk.
    """
    # the file name is a hash of all that can change the outcome: a new driver, version or source is checked again
    user_hash = registry.is_user_code(name) and module_hash(name)
    content = name, backend_name, precision, device(), versions(), engine_hash(), user_hash
    folder, digest = cache_folder(), hashlib.sha256(repr(content).encode()).hexdigest()[:32]
    cached = None if folder is None else folder / f"device-check-{digest}"
    if cached is not None and cached.exists():
        return cached.read_text() == "1"
    title = f"{name} on {backend_name}, first time on {device()}"
    try:
        decided, _ = simulate_briefly(learner, backend_of(learner, backend_name, precision))
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if reason not in _reported:  # a missing compiler fails for every learner: print it once
            _reported.add(reason)
            message = f"fails ({type(error).__name__}: {reason}) and is not used; --backend dense skips the check"
            print(f"{title}: {message}", file=sys.stderr)
        return False
    exact, _ = simulate_briefly(learner, backend_of(learner, "dense", "float64"))
    parted, decisions = count_parted(decided, exact)
    agrees = parted <= TOLERANCE[precision] * decisions
    refusal = f"differs from dense in {parted} of {CHECK_COPIES} copies, and is not used"
    print(f"{title}: {'decides as dense does' if agrees else refusal}", file=sys.stderr)
    if cached is not None:
        cached.write_text(str(int(agrees)))
    return agrees
