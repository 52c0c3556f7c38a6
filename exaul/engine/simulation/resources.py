"""How much memory and disk a sweep needs, and how many of its trials are played at a time so that it fits."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.machine import devices
from exaul.engine.machine.devices import device_memory
from exaul.engine.machine.memory import host_memory, resident_bytes, show_bytes
from exaul.engine.registry import BACKENDS
from exaul.engine.results.trials import SLICE
from exaul.engine.simulation.adaptive import ASKED, Interaction
from exaul.engine.simulation.players import Player
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.schedule import Schedule, make_schedules
from exaul.engine.simulation.simulation import rates_of_blocks
from exaul.engine.simulation.traced import TracedSimulation
from exaul.kernels.feedback import PERFECT_FEEDBACK

PROGRAM = 45 * 2**20  # bytes of the process for each learner that JAX compiles, and twice beside, as measured
LOOP = 10 * 2**20  # the same for each learner whose loop is stored
RECORD_BYTES = 50  # bytes of a record for compiled code: itself, its uniform, and its share of groups
PENDING_BYTES = 48  # bytes of an answer that waits for its feedback
WIDE = 2**30  # bytes of a batch beyond which more copies side by side gain nothing on a CPU
SHARE = 0.8  # of the memory that is free may be planned for
ROW_BYTES = 300  # bytes of a row of a table, at most
CURVES = 12  # of a slice that are there together
FIGURE_BYTES = 2 * 2**20  # bytes of the figures


class Resources(NamedTuple):
    """Bytes."""

    host: int  # of the process, on its host; on a CPU with what its programs take
    device: int  # of the programs, on each device: the one that needs most
    disk: int  # of the results, and of the state while it runs


def largest_batch(prepared: Prepared) -> int:
    """How many trials are played at a time: all, or as many as fit by halves."""
    host, device = SHARE * host_memory(), SHARE * device_memory()
    if devices.platform() == "cpu":
        host = min(host, estimate_resources(prepared, 1, compiled=False).host + WIDE)
    many = len(prepared.trials)
    while many > 1:
        needed = estimate_resources(prepared, many, compiled=False)
        if needed.host <= host and needed.device <= device:
            break
        many = -(-many // 2)
    return many


def split_trials(prepared: Prepared, most: int) -> list[Any]:
    """The trials of a sweep, so many at a time."""
    return [prepared.trials[first : first + most] for first in range(0, len(prepared.trials), most)]


def estimate_resources(prepared: Prepared, trials: int, compiled: bool) -> Resources:
    """What a sweep needs when so many of its trials are played at a time.

    Args:
        prepared: what is played.
        trials: at a time, at least 1.
        compiled: whether programs are compiled to see what they take, or it is estimated.
    """
    arms, reacts = len(prepared.grid), prepared.is_adaptive
    cells, checkpoint_rounds = len(prepared.alpha), len(prepared.checkpoints)
    copies, each = len(devices.padded_indices(cells * trials)), len(prepared.players)
    columns = cells * trials if reacts else trials if prepared.shuffles_records else 1
    cpu = devices.platform() == "cpu"
    best_arms_on_device = not cpu and not reacts  # on the device
    made = not reacts and (
        cpu or any(player.backend.simulation.on_host for player in prepared.players)
    )  # by the host
    width = trials if made else copies
    schedule = next(iter(make_schedules(prepared.horizon, width, prepared.checkpoints, on_host=made or reacts)))
    chunk = schedule.active.size * columns * (2 * RECORD_BYTES * made + 12 * reacts)  # this one and the next
    best_arms = columns * arms * 8 * 7  # counts, errors, and five sums of them at a checkpoint
    bounded = sum(player.learner.risk_bound is not None for player in prepared.players)
    # numbers at a checkpoint, of a trial and cell
    kept = 2 * each + bounded + (each * (1 + len(ASKED)) if reacts else 1)
    many = len(prepared.trials) * cells
    at_a_time = max(many, min(SLICE, many * checkpoint_rounds))  # numbers of a curve
    results = many * (checkpoint_rounds * 8 * (kept + 1) + 2 * ROW_BYTES * each) + at_a_time * 8 * CURVES
    taken, state = [], 0
    for player in prepared.players:
        program = partial(_program_bytes, prepared, player, trials, schedule) if compiled else None
        kept = PENDING_BYTES * (player.feedback.delay + 1) if player.feedback != PERFECT_FEEDBACK else 0
        numbers = copies * (8 * arms + kept)
        state += numbers
        there, each_device = player.backend.simulation.memory(numbers, program)
        if not cpu and (
            program is None or BACKENDS[player.backend.name].problem is not None
        ):  # programs say it themselves
            # totals at checkpoints
            each_device += 2 * 8 * schedule.checkpoint_rounds.size * copies // len(jax.local_devices())
        taken.append((there, each_device))
    hosts, programs = (list(x) for x in zip(*taken, strict=True))
    together = max(programs) if reacts else sum(programs)
    loops = sum(player.backend.simulation.on_host for player in prepared.players)
    here = resident_bytes() + PROGRAM * (2 + each - loops) + LOOP * loops
    host = here + chunk + results + sum(hosts) + (0 if best_arms_on_device else best_arms)
    host += together * len(jax.local_devices()) if cpu else 0
    state += len(prepared.trials) * cells * checkpoint_rounds * 16 * each
    disk = ROW_BYTES * cells * each * (len(prepared.trials) + checkpoint_rounds) + FIGURE_BYTES + state
    beside = 0
    if best_arms_on_device:
        pools = sum(len(pool.cuts) for pool in prepared.pools)
        beside = best_arms + 12 * schedule.checkpoint_rounds.size * cells * columns + 2 * 8 * pools * each
    return Resources(int(host), int(together + beside), int(disk))


def _program_bytes(prepared: Prepared, player: Player, trials: int, schedule: Schedule) -> int:
    """Bytes that the program of a chunk takes on each device, as JAX compiles it. No copy is allocated."""
    some = replace(prepared, trials=prepared.trials[:trials])
    with jax.enable_x64(True):
        sizes = _lower_program(some, player, schedule).compile().memory_analysis()
    arguments = sizes.argument_size_in_bytes - sizes.alias_size_in_bytes
    return arguments + sizes.output_size_in_bytes + sizes.temp_size_in_bytes


def _lower_program(prepared: Prepared, player: Player, schedule: Schedule) -> Any:
    kernels = player.backend.kernels
    if isinstance(prepared.environment, Adaptive):
        copies = prepared.copies()
        tuning = np.repeat(prepared.tunable_values[None], len(copies.draw), axis=0)
        more = tuning, prepared.trials, prepared.sweep.seed, prepared.checkpoints
        games = Interaction(
            player, prepared.environment, prepared.adaptive_pool(), copies, *more, make=jax.eval_shape
        )
        return games.lowered(schedule)
    stream, arms = prepared.stream(), len(prepared.grid)
    copies = player.with_aim(prepared.padded_copies(stream.record_stream))
    best = np.zeros(len(copies.draw), np.int32)
    simulation = TracedSimulation(kernels, copies, best, arms, stream, make=jax.eval_shape)
    return simulation.lowered(schedule, rates_of_blocks(player.rates, schedule.block))


def describe(prepared: Prepared) -> str:
    """What a sweep would take, before it starts."""
    most = largest_batch(prepared)
    needed = estimate_resources(prepared, most, compiled=True)
    cells = len(prepared.alpha) * len(prepared.players)
    copies = cells * len(prepared.trials)
    many = len(split_trials(prepared, most))
    rows = [
        ("cells", f"{cells:,} (alphas x lambdas x learners)"),
        ("copies", f"{copies:,} (cells x trials), in {many:,} batch{'es' * (many > 1)} of at most {most:,} trials"),
        ("rounds", f"{prepared.horizon:,} of each copy, {copies * prepared.horizon:,} in all"),
        (
            "memory",
            f"about {show_bytes(needed.host)} for the process at its peak ({show_bytes(host_memory())} free)",
        ),
        ("programs", f"{show_bytes(needed.device)} on each of {len(jax.local_devices())} device(s), as compiled"),
        ("disk", f"{show_bytes(needed.disk)} at most, with the state while it runs"),
    ]
    return "\n".join(f"{name:<10}{text}" for name, text in rows)
