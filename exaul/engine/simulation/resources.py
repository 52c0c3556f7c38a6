"""Estimate the memory and disk of a sweep, and choose how many trials to simulate at a time."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from exaul.engine import machine
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.machine import device_memory, host_memory, resident_bytes, show_bytes
from exaul.engine.results.trials import SLICE
from exaul.engine.simulation.best_arms import ASKED
from exaul.engine.simulation.players import Player
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.schedule import Schedule, make_schedules
from exaul.engine.simulation.simulation import rates_of_blocks
from exaul.kernels.feedback import PERFECT_FEEDBACK

# All in bytes, but for SHARE and CURVES.
PROGRAM = 45 * 2**20  # compiler and program of a learner on JAX, as measured; two more for the rest of the process
LOOP = 10 * 2**20  # compiled loop of a learner that is loaded from the cache, as measured
RECORD_BYTES = 50  # a record for compiled code: cut, error, uniform and its share of the groups
PENDING_BYTES = 48  # an answer that waits for its feedback
WIDE = 2**30  # batches larger than this are not faster on a CPU
SHARE = 0.8  # share of the free memory that may be planned for
ROW_BYTES = 300  # a row of a table, at most
CURVES = 13  # arrays of a slice of curves that exist at once
FIGURE_BYTES = 2 * 2**20  # all figures


class Resources(NamedTuple):
    """Needs of a sweep, in bytes."""

    host: int  # the process; on a CPU including its programs
    device: int  # the programs, on each device
    disk: int  # the results, and the saved state during the run


def largest_batch(prepared: Prepared) -> int:
    """Return the number of trials per batch: all, halved until the batch fits."""
    host, device = SHARE * host_memory(), SHARE * device_memory()
    if machine.platform() == "cpu":
        host = min(host, estimate_resources(prepared, 1, compiled=False).host + WIDE)
    many = len(prepared.trials)
    while many > 1:
        needed = estimate_resources(prepared, many, compiled=False)
        if needed.host <= host and needed.device <= device:
            break
        many = -(-many // 2)
    return many


def estimate_resources(prepared: Prepared, trials: int, compiled: bool) -> Resources:
    """Estimate the needs of batches of ``trials``; ``compiled`` compiles the programs to read their sizes."""
    adaptive, cpu = prepared.is_adaptive, machine.platform() == "cpu"
    cells, players = max(len(player.cells.pair) for player in prepared.players), prepared.players
    copies = len(machine.padded_indices(cells * trials))
    # one stream of records per copy if the environment is adaptive, per trial if records are shuffled, else one
    streams = cells * trials if adaptive else trials if prepared.shuffles_records else 1
    on_host = not adaptive and (cpu or any(player.backend.simulation.on_host for player in players))  # the records
    width = trials if on_host else copies
    schedule = next(
        iter(make_schedules(prepared.horizon, width, prepared.checkpoints, on_host=on_host or adaptive))
    )
    # Records of a chunk. The host makes the next chunk while one is simulated, hence 2. Adaptive environments
    # return the cut and error of every round to each player, 4 + 8 bytes.
    chunk_bytes = schedule.active.size * streams * (2 * RECORD_BYTES * on_host + 12 * adaptive * len(players))
    best_arms_on_device = not cpu and not adaptive
    # the sums of each stream by cut (counts and errors, on a device in two halves), and arrays of their size at a
    # checkpoint
    sums, arrays = (3, 6) if best_arms_on_device else (2, 5)
    best_arms_bytes = streams * len(prepared.grid) * 8 * (sums + arrays)
    saves = prepared.sweep.out is not None and not adaptive  # a save is written from copies of the states

    # two numbers per copy and checkpoint of a chunk; on a CPU they count as results
    totals_bytes = 0 if cpu else 2 * 8 * schedule.checkpoint_rounds.size * copies
    state_bytes = host_bytes = 0
    program_bytes = []
    for player in players:
        program = partial(_program_bytes, prepared, player, trials, schedule) if compiled else None
        state = len(machine.padded_indices(len(player.cells.pair) * trials)) * _copy_bytes(prepared, player)
        simulation = player.backend.simulation
        on_host_bytes, on_device_bytes = simulation.memory(state, totals_bytes, program)
        if saves:  # a state on a device is copied there, then to the host
            on_host_bytes += state if simulation.on_host or not cpu else 0
            on_device_bytes += 0 if simulation.on_host else state // machine.device_count()
        state_bytes, host_bytes = state_bytes + state, host_bytes + on_host_bytes
        program_bytes.append(on_device_bytes)
    device_bytes = sum(program_bytes)  # players run side by side
    loops = sum(player.backend.simulation.on_host for player in players)
    host_bytes += resident_bytes() + PROGRAM * (2 + len(players) - loops) + LOOP * loops
    host_bytes += chunk_bytes + _result_bytes(prepared) + saves * streams * len(prepared.grid) * 8 * sums
    if cpu:
        host_bytes += device_bytes * machine.device_count()
    if best_arms_on_device:
        pools = sum(len(pool.cuts) for pool in prepared.pools)
        # the best arms: sums, losses and arms (8 + 4 bytes) in blocks with checkpoints; and the pools of records
        with_checkpoints = schedule.checkpoint_rounds[schedule.checkpoint_rounds.any(axis=1)]
        device_bytes += best_arms_bytes + 12 * with_checkpoints.size * len(prepared.alpha) * streams
        device_bytes += 2 * 8 * pools * len(players)
    else:
        host_bytes += best_arms_bytes
    return Resources(int(host_bytes), int(device_bytes), int(_disk_bytes(prepared, state_bytes)))


def _copy_bytes(prepared: Prepared, player: Player) -> int:
    """Return the state of one copy: one float64 per arm, and the answers that wait for feedback."""
    state, feedback = 8 * len(prepared.grid), player.feedback
    if feedback == PERFECT_FEEDBACK:
        return state
    return state + 8 * (feedback.delay + 1) + PENDING_BYTES * feedback.places(prepared.horizon)


def _result_bytes(prepared: Prepared) -> int:
    """Return the bytes of all results on the host, with the slices in which curves are computed."""
    players, checkpoints = len(prepared.players), len(prepared.checkpoints)
    bounded = sum(player.learner.risk_bound is not None for player in prepared.players)
    # Numbers per checkpoint, trial and cell. Each learner has answered and wrong; in adaptive environments also its
    # own least loss and the kinds of records.
    numbers = 2 * players + bounded + (players * (1 + len(ASKED)) if prepared.is_adaptive else 1)
    copies = max(map(prepared.copies_of, prepared.players))
    slice_numbers = max(copies, min(SLICE, copies * checkpoints))
    return copies * (checkpoints * 8 * (numbers + 1) + 2 * ROW_BYTES * players) + slice_numbers * 8 * CURVES


def _disk_bytes(prepared: Prepared, state_bytes: int) -> int:
    """Return the bytes of the tables, figures and saved state of a sweep."""
    cells, trials = sum(len(player.cells.pair) for player in prepared.players), len(prepared.trials)
    checkpoints = len(prepared.checkpoints)
    rows = cells * (trials + checkpoints)
    return ROW_BYTES * rows + FIGURE_BYTES + state_bytes + trials * cells * checkpoints * 16


def _program_bytes(prepared: Prepared, player: Player, trials: int, schedule: Schedule) -> int:
    """Compile the program of a chunk and return its bytes on each device, without allocating copies."""
    import jax

    some = replace(prepared, trials=prepared.trials[:trials])
    with jax.enable_x64(True):
        sizes = _lower_program(some, player, schedule).compile().memory_analysis()
    # donated arguments are reused for outputs: count them once
    arguments = sizes.argument_size_in_bytes - sizes.alias_size_in_bytes
    return arguments + sizes.output_size_in_bytes + sizes.temp_size_in_bytes


def _lower_program(prepared: Prepared, player: Player, schedule: Schedule) -> Any:
    import jax

    from exaul.engine.simulation.interaction import interact_as_prepared
    from exaul.engine.simulation.rounds import RoundsSimulation

    rates = rates_of_blocks(player.rates, schedule.block)
    if isinstance(prepared.environment, Adaptive):
        return interact_as_prepared(prepared, player, jax.eval_shape)[0].lowered(schedule, rates)
    stream, arms = prepared.trial_records(), len(prepared.grid)
    copies = player.with_aim(prepared.padded_copies(player, stream.record_stream))
    kernels, start = player.backend.kernels, prepared.padded_start(player)
    return RoundsSimulation(kernels, copies, start, arms, stream, make=jax.eval_shape).lowered(schedule, rates)


def describe(prepared: Prepared) -> str:
    """Describe the size, memory and disk of a sweep on one source, as text."""
    most = largest_batch(prepared)
    needed = estimate_resources(prepared, most, compiled=True)
    cells = sum(len(player.cells.pair) for player in prepared.players)
    copies = cells * len(prepared.trials)
    many = -(-len(prepared.trials) // most)
    rows = [
        ("cells", f"{cells:,} (alphas x lambdas x rates, of all learners)"),
        ("copies", f"{copies:,} (cells x trials), in {many:,} batch{'es' * (many > 1)} of at most {most:,} trials"),
        ("rounds", f"{prepared.horizon:,} of each copy, {copies * prepared.horizon:,} in all"),
        (
            "memory",
            f"about {show_bytes(needed.host)} for the process at its peak ({show_bytes(host_memory())} free)",
        ),
        ("programs", f"{show_bytes(needed.device)} on each of {machine.device_count()} device(s), as compiled"),
        ("disk", f"{show_bytes(needed.disk)} at most, with the state while it runs"),
    ]
    return "\n".join(f"{name:<10}{text}" for name, text in rows)
