"""A device that has never run a backend is tried once: its decisions against those of the dense one."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exaul.engine.data import sources
from exaul.engine.machine import devices
from exaul.engine.play.rates import block_rates
from exaul.engine.play.schedule import Stream
from exaul.engine.play.simulation import Copies, Simulation, rates_at
from exaul.engine.results.manifest import device, versions
from exaul.kernels.cache import cache_folder
from exaul.kernels.game import ROUNDS, SPAN, Block, costs
from exaul.kernels.learners.learner import Learner
from exaul.kernels.records import Pool, streams
from exaul.kernels.uniforms import IMPERFECT

ROUNDS_PLAYED, ARMS, COPIES = SPAN, 100, 32

Made = tuple[Any, type[Simulation]]  # a backend, and what drives it


def decisions(learner: Learner[Any], made: Made, rated: bool = False) -> Any:
    """What copies of a learner do in 1,024 random rounds that are handed in, [T, B].

    Args:
        learner: who plays.
        made: its backend.
        rated: whether thumbs are imperfect.
    """
    rng = np.random.default_rng(0)
    shape = ROUNDS_PLAYED // ROUNDS, ROUNDS, COPIES
    scores = rng.random(shape)
    cuts = np.clip((scores * ARMS).astype(np.int32), 1, ARMS - 1)
    errors, draws = (rng.random(shape) < 1 - scores).astype(np.float64), rng.random(shape)
    if rated:
        draws = np.concatenate([draws, *rng.random((len(IMPERFECT) - 1, *shape))], axis=-1)
    lanes = devices.padded(COPIES)
    number = np.arange(COPIES, dtype=np.int32)
    alpha = rng.choice([0.05, 0.2], COPIES)
    copies = Copies(alpha, *costs(alpha, np.full(COPIES, 32.0)), number, number, number * 0).take(lanes)
    pool = Pool(cuts[0, :, 0], errors[0, :, 0])
    records = streams(lambda where, t, horizon, u: 0, True, [pool], ROUNDS_PLAYED, 0, number)
    stream = Stream(records, ROUNDS_PLAYED, 0, number, rated)
    playing = made[1](made[0], copies, ARMS, stream)
    rates = rates_at(
        block_rates(learner, ROUNDS_PLAYED, ARMS, False, None, None), np.arange(shape[0], dtype=np.uint32)
    )
    with jax.enable_x64(True):
        block = Block(cuts, errors, draws, np.ones(shape[:2], bool))
        return np.asarray(playing.advance(block, rates, copies).answered)[:, :COPIES]


def proved(learner: Learner[Any], name: str, backend_name: str, made: Made, oracle: Made) -> bool:
    """Whether a backend in float64 decides on this device as the dense one does; remembered, and said when tried.

    Args:
        learner: that is played.
        name: of the learner.
        backend_name: of the backend.
        made: the learner on it.
        oracle: the learner on the dense one.
    """
    note = _note(name, backend_name)
    if note is not None and note.exists():
        return note.read_text() == "0"
    differ = int((decisions(learner, made) != decisions(learner, oracle)).sum())
    what = "decides as dense does" if differ == 0 else f"differs from dense in {differ} decisions, and is not used"
    print(f"{name} on {backend_name}, first time on {device()}: {what}", file=sys.stderr)
    if note is not None:
        note.write_text(str(differ))
    return differ == 0


def _note(name: str, backend_name: str) -> Path | None:
    """The file that remembers the outcome, for this device, these versions and these sources."""
    folder = cache_folder()
    if folder is None:
        return None
    content = name, backend_name, device(), versions(), sources.own(), sources.of(name) if ":" in name else ""
    return folder / f"proof-{hashlib.sha256(repr(content).encode()).hexdigest()[:32]}"
