"""How much memory and disk a sweep needs, and how many of its trials are played at a time so that it fits."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.machine import devices
from exaul.engine.machine.devices import on_device
from exaul.engine.machine.memory import on_host, resident, size
from exaul.engine.play.interaction import ASKED, Interaction
from exaul.engine.play.players import Player
from exaul.engine.play.prepare import Prepared
from exaul.engine.play.schedule import Schedule, schedule
from exaul.engine.play.simulation import rates_at
from exaul.engine.play.traced import TracedSimulation
from exaul.engine.registry import BACKENDS
from exaul.engine.results.trials import SLICE
from exaul.kernels.thumbs import PERFECT

PROGRAM = 45 * 2**20  # bytes of the process for each learner that JAX compiles, and twice beside, as measured
LOOP = 10 * 2**20  # the same for each learner whose loop is stored
RECORD = 50  # bytes of a record for compiled code: itself, its uniform, and its share of groups
KEPT = 48  # bytes of an answer that waits for its thumb
WIDE = 2**30  # bytes of a batch beyond which more copies side by side gain nothing on a CPU
SHARE = 0.8  # of the memory that is free may be planned for
ROW = 300  # bytes of a row of a table, at most
CURVES = 12  # of a slice that are there together
FIGURES = 2 * 2**20  # bytes of the figures


class Need(NamedTuple):
    """Bytes."""

    host: int  # of the process, on its host; on a CPU with what its programs take
    device: int  # of the programs, on each device: the one that needs most
    disk: int  # of the results, and of the state while it runs


def batch(prepared: Prepared) -> int:
    """How many trials are played at a time: all, or as many as fit by halves."""
    host, device = SHARE * on_host(), SHARE * on_device()
    if devices.platform() == "cpu":
        host = min(host, need(prepared, 1, compiled=False).host + WIDE)
    many = len(prepared.trials)
    while many > 1:
        needed = need(prepared, many, compiled=False)
        if needed.host <= host and needed.device <= device:
            break
        many = -(-many // 2)
    return many


def batches(prepared: Prepared, most: int) -> list[Any]:
    """The trials of a sweep, so many at a time."""
    return [prepared.trials[first : first + most] for first in range(0, len(prepared.trials), most)]


def need(prepared: Prepared, trials: int, compiled: bool) -> Need:
    """What a sweep needs when so many of its trials are played at a time.

    Args:
        prepared: what is played.
        trials: at a time, at least 1.
        compiled: whether programs are compiled to see what they take, or it is estimated.
    """
    arms, reacts = len(prepared.grid), prepared.reacts
    cells, marks = len(prepared.alpha), len(prepared.checkpoints)
    copies, each = len(devices.padded(cells * trials)), len(prepared.players)
    columns = cells * trials if reacts else trials if prepared.own_records else 1
    cpu = devices.platform() == "cpu"
    surveyed = not cpu and not reacts  # on the device
    made = not reacts and (
        cpu or any(player.backend.simulation.on_host for player in prepared.players)
    )  # by the host
    width = trials if made else copies
    when = next(iter(schedule(prepared.horizon, width, prepared.checkpoints, on_host=made or reacts)))
    chunk = when.active.size * columns * (2 * RECORD * made + 12 * reacts)  # this one and the next
    survey = columns * arms * 8 * 7  # counts, errors, and five sums of them at a checkpoint
    bounded = sum(player.learner.risk_bound is not None for player in prepared.players)
    kept = 2 * each + bounded + (each * (1 + len(ASKED)) if reacts else 1)  # numbers at a mark, of a trial and cell
    many = len(prepared.trials) * cells
    at_a_time = max(many, min(SLICE, many * marks))  # numbers of a curve
    results = many * (marks * 8 * (kept + 1) + 2 * ROW * each) + at_a_time * 8 * CURVES
    taken, state = [], 0
    for player in prepared.players:
        program = partial(_program, prepared, player, trials, when) if compiled else None
        kept = KEPT * (player.thumbs.delay + 1) if player.thumbs != PERFECT else 0
        numbers = copies * (8 * arms + kept)
        state += numbers
        there, each_device = player.backend.simulation.memory(numbers, program)
        if not cpu and (
            program is None or BACKENDS[player.backend.name].problem is not None
        ):  # programs say it themselves
            each_device += 2 * 8 * when.marks.size * copies // len(jax.local_devices())  # totals at marks
        taken.append((there, each_device))
    hosts, programs = (list(x) for x in zip(*taken, strict=True))
    together = max(programs) if reacts else sum(programs)
    loops = sum(player.backend.simulation.on_host for player in prepared.players)
    here = resident() + PROGRAM * (2 + each - loops) + LOOP * loops
    host = here + chunk + results + sum(hosts) + (0 if surveyed else survey)
    host += together * len(jax.local_devices()) if cpu else 0
    state += len(prepared.trials) * cells * marks * 16 * each
    disk = ROW * cells * each * (len(prepared.trials) + marks) + FIGURES + state
    beside = 0
    if surveyed:
        pools = sum(len(pool.cuts) for pool in prepared.pools)
        beside = survey + 12 * when.marks.size * cells * columns + 2 * 8 * pools * each
    return Need(int(host), int(together + beside), int(disk))


def _program(prepared: Prepared, player: Player, trials: int, when: Schedule) -> int:
    """Bytes that the program of a chunk takes on each device, as JAX compiles it. No copy is allocated."""
    some = replace(prepared, trials=prepared.trials[:trials])
    with jax.enable_x64(True):
        sizes = _lowered(some, player, when).compile().memory_analysis()
    arguments = sizes.argument_size_in_bytes - sizes.alias_size_in_bytes
    return arguments + sizes.output_size_in_bytes + sizes.temp_size_in_bytes


def _lowered(prepared: Prepared, player: Player, when: Schedule) -> Any:
    kernels = player.backend.kernels
    if isinstance(prepared.environment, Adaptive):
        copies = prepared.copies()
        tuning = np.repeat(prepared.tuning[None], len(copies.draw), axis=0)
        more = tuning, prepared.trials, prepared.sweep.seed, prepared.checkpoints
        games = Interaction(player, prepared.environment, prepared.world(), copies, *more, make=jax.eval_shape)
        return games.lowered(when)
    stream, arms = prepared.stream(), len(prepared.grid)
    copies = player.aimed(prepared.padded_copies(stream.column))
    best = np.zeros(len(copies.draw), np.int32)
    simulation = TracedSimulation(kernels, copies, best, arms, stream, make=jax.eval_shape)
    return simulation.lowered(when, rates_at(player.rates, when.block))


def describe(prepared: Prepared) -> str:
    """What a sweep would take, before it starts."""
    most = batch(prepared)
    needed = need(prepared, most, compiled=True)
    cells = len(prepared.alpha) * len(prepared.players)
    copies = cells * len(prepared.trials)
    many = len(batches(prepared, most))
    rows = [
        ("cells", f"{cells:,} (alphas x lambdas x learners)"),
        ("copies", f"{copies:,} (cells x trials), in {many:,} batch{'es' * (many > 1)} of at most {most:,} trials"),
        ("rounds", f"{prepared.horizon:,} of each copy, {copies * prepared.horizon:,} in all"),
        ("memory", f"about {size(needed.host)} for the process at its peak ({size(on_host())} free)"),
        ("programs", f"{size(needed.device)} on each of {len(jax.local_devices())} device(s), as compiled"),
        ("disk", f"{size(needed.disk)} at most, with the state while it runs"),
    ]
    return "\n".join(f"{name:<10}{text}" for name, text in rows)
