"""A device that has never run a backend is tried once: its decisions against those of the dense one."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exaul.engine.checks import BadInput
from exaul.engine.data import sources
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.machine import devices
from exaul.engine.results.manifest import device, versions
from exaul.engine.simulation.schedule import Stream, make_chunks
from exaul.engine.simulation.simulation import LearnerBackend, rates_of_blocks
from exaul.kernels.backends.cuda.errors import DeviceFailure
from exaul.kernels.cache import cache_folder
from exaul.kernels.game import SPAN, Copies, compute_costs
from exaul.kernels.learners.learner import Learner
from exaul.kernels.rates import block_rates
from exaul.kernels.records import Pool, make_streams

CHECKED_ROUNDS, ARMS, COPIES = SPAN, 100, 32
SIZES = 300, 2000  # records of the pools in turn: orders in more passes, some laps of them, and in fewer

_reported: set[str] = set()  # reasons for which backends failed in this process


def _shifting_pool(where: Any, t: Any, horizon: Any, u: Any) -> Any:
    return where((3 * t > horizon) & (u < 0.5), 1, 0)


CHECK_ENVIRONMENT = Oblivious(2, True, _shifting_pool)


def record_decisions(
    learner: Learner[Any],
    backend: LearnerBackend,
    environment: Oblivious = CHECK_ENVIRONMENT,
    imperfect: bool = False,
) -> Any:
    """What copies of a learner do in 1,024 rounds that are played as a sweep is.

    Args:
        learner: who plays.
        backend: its own.
        environment: from which pool a round comes.
        imperfect: whether feedback is.

    Returns:
        [T, B] numbers, from the totals at a checkpoint after each round: 0 is no answer, 1 a right one, 2 a wrong
        one.
    """
    rng, number = np.random.default_rng(0), np.arange(COPIES, dtype=np.int32)
    pools = []
    for p in range(environment.sources):
        scores = rng.random(SIZES[p % len(SIZES)])
        cuts = np.clip((scores * ARMS).astype(np.int32), 1, ARMS - 1)
        pools.append(Pool(cuts, (rng.random(len(scores)) < 1 - scores).astype(np.float64)))
    own = make_streams(environment.pool, environment.shuffled, pools, CHECKED_ROUNDS, 0, number)
    alpha = rng.choice([0.05, 0.2], COPIES)
    copies = Copies(alpha, *compute_costs(alpha, np.full(COPIES, 32.0)), number, number)
    rates = block_rates(learner, CHECKED_ROUNDS, ARMS, False, None, None)
    with jax.enable_x64(True):
        stream = Stream(own, CHECKED_ROUNDS, 0, number, imperfect)
        padded = devices.padded_indices(COPIES)
        playing = backend.start(copies.take(padded), 0 * number[padded], ARMS, stream)
        (chunk,) = make_chunks(stream, np.arange(1, CHECKED_ROUNDS + 1))
        playing.prepare(chunk)
        playing.start(chunk, rates_of_blocks(rates, chunk.schedule.block))
        totals = playing.collect()
    sums = (
        totals.answered[chunk.schedule.checkpoint_rounds > 0] + totals.wrong[chunk.schedule.checkpoint_rounds > 0]
    )
    return np.diff(sums[:, :COPIES], axis=0, prepend=0)


def device_agrees(
    learner: Learner[Any],
    name: str,
    made: LearnerBackend,
    oracle: LearnerBackend,
    own: tuple[str, Oblivious] | None,
) -> bool:
    """Whether a backend in float64 decides on this device as the dense one does; remembered, and said when tried.

    One that fails, since its compiler is not there or does not know the device, is not used. That is not remembered
    beyond this process.

    Args:
        learner: that is played.
        name: of the learner.
        made: the learner on it.
        oracle: the learner on the dense one.
        own: an environment of one's own that is to be played, with its name: it is compiled into the same program.

    Raises:
        BadInput: the device has too little memory for it.
        DeviceFailure: a kernel failed, and this process can no longer use the device.
    """
    place, environment = own or ("", CHECK_ENVIRONMENT)
    cached = _cached_result(name, made.name, place)
    if cached is not None and cached.exists():
        return cached.read_text() == "0"
    where = f"{name} on {made.name}, first time on {device()}{place and f' in {place}'}"
    try:
        decided = record_decisions(learner, made, environment)
    except MemoryError as error:
        raise BadInput(f"backend: {made.name} cannot be tried; the device has too little free memory") from error
    except DeviceFailure:  # JAX shares the device with the backend, and cannot use it any more either
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if reason not in _reported:  # learners that fail for one reason are reported once
            _reported.add(reason)
            said = f"fails ({type(error).__name__}: {reason}) and is not used; --backend dense skips the check"
            print(f"{where}: {said}", file=sys.stderr)
        return False
    differ = int((decided != record_decisions(learner, oracle, environment)).sum())
    what = "decides as dense does" if differ == 0 else f"differs from dense in {differ} decisions, and is not used"
    print(f"{where}: {what}", file=sys.stderr)
    if cached is not None:
        cached.write_text(str(differ))
    return differ == 0


def _cached_result(name: str, backend_name: str, place: str) -> Path | None:
    """The file that remembers the outcome, for this device, these versions and these sources."""
    folder = cache_folder()
    if folder is None:
        return None
    of = [sources.module_hash(x) for x in (name, place) if ":" in x]
    content = name, backend_name, place, device(), versions(), sources.engine_hash(), of
    return folder / f"proof-{hashlib.sha256(repr(content).encode()).hexdigest()[:32]}"
