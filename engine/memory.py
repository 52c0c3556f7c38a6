"""How much memory and disk a sweep needs, and how many of its trials are played at a time so that it fits."""

import os
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from engine import devices, interaction, learners, rollout
from engine.environments.adaptive import Adaptive, Aim
from engine.game import Game
from engine.learners import LEARNERS
from engine.rollout import Schedule, Totals
from kernels.game import ROUNDS
from kernels.learner import Backend

PROGRAM = 45 * 2**20  # bytes of the process for each compiled learner, as measured
UNSEEN = 6  # arrays of the size of the weights that a program holds, where it is not compiled to see
SHARE = 0.8  # of the memory that is free may be planned for
ROW = 300  # bytes of a row of a table, at most
FIGURES = 2 * 2**20  # bytes of the figures


class Need(NamedTuple):
    """Bytes."""

    host: int  # of the process, on its host; on a CPU with what its programs hold
    device: int  # of the programs, on each device: the one that needs most
    disk: int  # of the results, and of the state while it runs


def on_host() -> int:
    """Bytes that are free on the host."""
    try:
        with open("/proc/meminfo") as lines:  # what the system could free counts too
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def on_device() -> int:
    """Bytes that are free on each device: where it does not say, those of the host."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else on_host()


def batch(game: Game) -> int:
    """How many trials are played at a time: all, or as many as fit by halves."""
    host, device = on_host(), on_device()
    many = len(game.trials)
    while many > 1:
        needed = need(game, many, compiled=False)
        if needed.host <= SHARE * host and needed.device <= SHARE * device:
            break
        many = -(-many // 2)
    return many


def need(game: Game, trials: int, compiled: bool) -> Need:
    """What a sweep needs when so many of its trials are played at a time.

    Args:
        game: what is played.
        trials: at a time, at least 1.
        compiled: whether programs are compiled to see what they hold, or it is reckoned.
    """
    sweep, arms = game.sweep, game.sweep.arms
    cells, marks = len(game.alpha), min(game.sweep.checkpoints, game.horizon)
    copies, each = len(devices.padded(cells * trials)), len(sweep.learners)
    reacts = isinstance(game.environment, Adaptive)
    columns = cells * trials if reacts else len(np.unique(game.stream().column[:trials]))
    width = copies if reacts else trials
    when = next(iter(rollout.schedule(game.horizon, width, np.array([game.horizon]))))
    orders = 0 if reacts or columns < trials else trials * sum(len(pool.cuts) for pool in game.pools) * 4
    chunk = when.active.size * columns * (4 + 8) * (4 if not reacts else 1)  # this one, the next, and their groups
    comparator = columns * arms * 8 * 7  # counts, errors, and five sums of them at a checkpoint
    figures = len(game.trials) * cells * marks * 8 * (3 * each + 10)
    programs = {name: _program(game, name, trials, copies, when, compiled) for name in sweep.learners}
    native = sum(held for held, by_jax in programs.values() if not by_jax)
    compiled_too = [held for held, by_jax in programs.values() if by_jax]
    together = max(compiled_too, default=0) if reacts else sum(compiled_too)
    cpu = jax.default_backend() == "cpu"
    here = _resident() + PROGRAM * (1 + each)
    host = (
        here + orders + chunk + comparator + figures + native + (together * len(jax.local_devices()) if cpu else 0)
    )
    state = copies * arms * 8 * each + len(game.trials) * cells * marks * 16 * each
    disk = ROW * cells * each * (len(game.trials) + marks) + FIGURES + state
    return Need(int(host), int(together), int(disk))


def _resident() -> int:
    """Bytes of this process now."""
    try:
        with open("/proc/self/statm") as line:
            return int(line.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _program(game: Game, name: str, trials: int, copies: int, when: Schedule, compiled: bool) -> tuple[int, bool]:
    """Bytes that a learner's program holds, and whether JAX holds them."""
    backend = learners.backend(LEARNERS[name], game.backend(name), game.sweep.precision)
    if not isinstance(backend, Backend):
        return copies * game.sweep.arms * 8, False
    if not compiled:
        copies //= len(jax.local_devices())
        return copies * game.sweep.arms * 8 * (1 if LEARNERS[name].kind == "fixed" else UNSEEN), True
    with jax.enable_x64(True):
        some = replace(game, trials=game.trials[:trials])
        sizes = _lowered(some, backend, copies, when).compile().memory_analysis()
    given = sizes.argument_size_in_bytes - sizes.alias_size_in_bytes
    return given + sizes.output_size_in_bytes + sizes.temp_size_in_bytes, True


def _lowered(game: Game, backend: Backend, copies: int, when: Schedule) -> Any:
    """The program that plays a chunk, for arrays of the shapes that it will be given."""

    def struct(*shape: int, dtype: Any = np.float64) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    blocks, trials = len(when.block), len(game.trials)
    reacts = isinstance(game.environment, Adaptive)
    columns = 1 if reacts else len(np.unique(game.stream().column))
    state = jax.eval_shape(lambda: backend.init(game.sweep.arms, np.zeros(copies, np.int32), columns))
    totals = Totals(struct(copies, dtype=np.int64), struct(copies))
    rates = struct(blocks), struct(blocks)
    each = {name: struct(copies) for name in ("alpha", "answer", "abstain")}
    each |= {"record": struct(copies, dtype=np.int32), "draw": struct(copies, dtype=np.int32)}
    keys = struct(trials, dtype=np.uint32), struct(trials, dtype=np.uint32)
    axes = rollout.axes_of(backend, game.sweep.arms, columns)
    if not isinstance(game.environment, Adaptive):
        records = struct(blocks, ROUNDS, columns, dtype=np.int32), struct(blocks, ROUNDS, columns)
        chunk = rollout.Chunk(when.block, *records, when.active, when.marks)
        return rollout.play.lower(backend.advance, axes, state, totals, chunk, rates, each, keys)
    world, environment = game.world(), game.environment
    place = jax.eval_shape(lambda: environment.init(jax.tree.map(jnp.asarray, world), copies))
    aim = Aim(struct(copies), struct(copies), struct(copies), struct(len(environment.tunables), copies))
    both = axes, devices.axes(lambda many: environment.init(world, many))
    given = state, place, totals, when, rates, each, aim, (keys, keys), world
    return interaction.play.lower(backend.turns, environment, both, *given)


def batches(game: Game, most: int) -> list[Any]:
    """The trials of a game, so many at a time."""
    return [game.trials[first : first + most] for first in range(0, len(game.trials), most)]


def describe(game: Game) -> str:
    """What a sweep would take, before it starts."""
    most = batch(game)
    needed = need(game, most, compiled=True)
    cells = len(game.alpha) * len(game.sweep.learners)
    copies = cells * len(game.trials)
    many = len(batches(game, most))
    rows = [
        ("cells", f"{cells:,} (alphas x lambdas x learners)"),
        ("copies", f"{copies:,} (cells x trials), in {many:,} batch{'es' * (many > 1)} of at most {most:,} trials"),
        ("rounds", f"{game.horizon:,} of each copy, {copies * game.horizon:,} in all"),
        ("memory", f"{size(needed.host)} of the process, at its peak, about ({size(on_host())} free)"),
        ("programs", f"{size(needed.device)} on each of {len(jax.local_devices())} device(s), as compiled"),
        ("disk", f"{size(needed.disk)} at most, with the state while it runs"),
    ]
    return "\n".join(f"{name:<10}{text}" for name, text in rows)


def size(count: float) -> str:
    """Bytes as text."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
