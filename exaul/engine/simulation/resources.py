"""Bound the memory and disk of a sweep, and choose how many trials to simulate at a time."""

from typing import NamedTuple

import numpy as np

from exaul.engine import machine
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.machine import device_memory, host_memory, resident_bytes, show_bytes
from exaul.engine.results.trials import SLICE
from exaul.engine.simulation.best_arms import ASKED
from exaul.engine.simulation.learners import PreparedLearner
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.schedule import blocks_per_chunk
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.game import ROUNDS
from exaul.kernels.learners.learner import Own, start_copies

SHARE = 0.8  # share of the free memory that may be planned for
WIDE = 2**30  # bytes; batches larger than this are not faster on a CPU
COPIED = 3  # a state, the program's copy of it, and what is being saved
# In bytes, at most, as measured: the rest of the process, one with JAX, a program of JAX, a compiled loop, a record
# of a chunk, an answer that waits for feedback, a row of a table, all figures, and the slices of curves.
BASE, JAX, PROGRAM, LOOP = 140 * 2**20, 300 * 2**20, 70 * 2**20, 15 * 2**20
RECORD_BYTES, PENDING_BYTES, ROW_BYTES, FIGURE_BYTES, CURVE_BYTES = 50, 48, 300, 2**21, 8 * 13


class Resources(NamedTuple):
    """What a batch needs at most, in bytes."""

    host: int  # the process, with the copies if they are simulated on its CPU
    device: int  # on another device
    disk: int  # the results of the sweep, and the saved state during the run


def largest_batch(prepared: Prepared) -> int:
    """Return the number of trials per batch: all, halved until the batch fits."""
    host, device = SHARE * host_memory(), SHARE * device_memory()
    if machine.platform() == "cpu":
        host = min(host, bound_resources(prepared, 1).host + WIDE)
    many = len(prepared.trials)
    while many > 1:
        needed = bound_resources(prepared, many)
        if needed.host <= host and needed.device <= device:
            break
        many = -(-many // 2)
    return many


def bound_resources(prepared: Prepared, trials: int) -> Resources:
    """Bound the needs of batches of some trials: ``copies x (3 x state + 16 x checkpoints)``, and a table.

    The bytes of a state follow from its shape, so that nothing is compiled.
    """
    cpu, adaptive, points = machine.platform() == "cpu", prepared.is_adaptive, len(prepared.checkpoints)
    arms, learners = len(prepared.grid), prepared.learners
    most = max(len(learner.cells.pair) for learner in learners) * trials
    # one stream of records per copy if the environment is adaptive, per trial if records are shuffled, else one
    streams = most if adaptive else trials if prepared.shuffles_records else 1
    states = kept = 0
    for learner in learners:
        copies = len(machine.padded_indices(len(learner.cells.pair) * trials))
        states += copies * COPIED * _state_bytes(prepared, learner)
        # answers and errors; the bound of the risk; if adaptive, the least loss and the kinds of records
        kept += copies * points * (16 + 8 * (learner.definition.risk_bound is not None))
        kept += copies * points * 8 * (1 + len(ASKED)) * adaptive
    rounds = min(-(-prepared.horizon // ROUNDS), blocks_per_chunk(most if adaptive else trials)) * ROUNDS
    # of records, one chunk is made while one is simulated
    chunk = rounds * streams * (12 * len(learners) if adaptive else 2 * RECORD_BYTES)
    hindsight = streams * arms * 8 * 2 * COPIED * (len(learners) if adaptive else 1)
    tables = (
        most * (points * 8 + 2 * ROW_BYTES * len(learners)) + max(most, min(SLICE, most * points)) * CURVE_BYTES
    )
    loops = sum(learner.on_host for learner in learners)
    programs = LOOP * loops + (JAX + PROGRAM * (len(learners) - loops)) * (loops < len(learners))
    host = BASE + resident_bytes() + programs + chunk + hindsight + kept + tables + states * cpu
    pools = 2 * 8 * sum(len(records.scores) for records in prepared.records) * len(learners)
    device = 0 if cpu else states + 16 * most * points + pools
    return Resources(int(host), int(device), int(_disk_bytes(prepared, states // COPIED)))


def _state_bytes(prepared: Prepared, learner: PreparedLearner) -> int:
    """Return the state of one copy: a float64 per arm, a ninth for rows, and the answers that wait for feedback."""
    state, feedback = 9 * len(prepared.grid), learner.feedback
    if isinstance(prepared.environment, Adaptive):  # draws of a block, and a distribution
        state += 8 * (ROUNDS * prepared.environment.draws + 2 * len(prepared.grid))
    if isinstance(learner.definition.rule, Own):
        import jax

        from exaul.kernels.play import initial_states

        arms, zero = len(prepared.grid), np.zeros(1, np.int32)
        start = start_copies(learner.definition.rule, arms, learner.first, zero, zero)
        with jax.enable_x64(True):
            game = learner.definition.rule.game(arms)
            shapes = jax.eval_shape(lambda: initial_states(game, start))
        return state + sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))
    if feedback == PERFECT_FEEDBACK:
        return state
    return state + 8 * (feedback.delay + 1) + PENDING_BYTES * feedback.places(prepared.horizon)


def _disk_bytes(prepared: Prepared, state_bytes: int) -> int:
    """Return the bytes of the tables, figures and saved state of a sweep."""
    cells, trials = sum(len(learner.cells.pair) for learner in prepared.learners), len(prepared.trials)
    checkpoints = len(prepared.checkpoints)
    rows = cells * (trials + checkpoints)
    return ROW_BYTES * rows + FIGURE_BYTES + state_bytes + trials * cells * checkpoints * 16


def describe(prepared: Prepared) -> str:
    """Describe the size, memory and disk of a sweep on one source, as text."""
    most = largest_batch(prepared)
    needed = bound_resources(prepared, most)
    cells = sum(len(learner.cells.pair) for learner in prepared.learners)
    copies = cells * len(prepared.trials)
    many = -(-len(prepared.trials) // most)
    on_device = f", {show_bytes(needed.device)} on the device" * bool(needed.device)
    rows = [
        ("cells", f"{cells:,} (alphas x lambdas x rates, of all learners)"),
        ("copies", f"{copies:,} (cells x trials), in {many:,} batch{'es' * (many > 1)} of at most {most:,} trials"),
        ("rounds", f"{prepared.horizon:,} of each copy, {copies * prepared.horizon:,} in all"),
        ("memory", f"at most {show_bytes(needed.host)} ({show_bytes(host_memory())} free){on_device}"),
        ("disk", f"at most {show_bytes(needed.disk)}, with the state while it runs"),
    ]
    return "\n".join(f"{name:<10}{text}" for name, text in rows)
