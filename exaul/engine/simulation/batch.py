"""Simulate a batch (all learners on some trials of a source) chunk by chunk, and bound its needs beforehand."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine import machine
from exaul.engine.checks import BadInput
from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, Objective, tunable_choices
from exaul.engine.folder import Batch, SweepFolder
from exaul.engine.registry import is_user_code
from exaul.engine.simulation.chunks import (
    ASKED,
    AdaptiveGames,
    AskedCounter,
    BestArmCounter,
    Chunk,
    NativeSimulation,
    TrialRecords,
    blocks_per_chunk,
    make_chunks,
    padded_indices,
    select_rates,
)
from exaul.engine.simulation.prepare import PreparedSource
from exaul.engine.simulation.prepare_learner import PreparedLearner
from exaul.engine.simulation.totals import SLICE, Totals, totals_of
from exaul.kernels import native, uniforms
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.game import BLOCK
from exaul.kernels.learners.learner import Own, start_copies
from exaul.kernels.metrics import Floats

if TYPE_CHECKING:  # which imports JAX
    from exaul.engine.simulation.jax_chunks import JaxSimulation

OnRounds = Callable[[int], object]  # called with the rounds simulated since its last call, of all copies together
Saves = tuple[SweepFolder, Batch]  # where states are saved between chunks, and their batch
NO_SAVES: Saves = SweepFolder(None, {}), Batch(0, 0, 0)  # in memory, where nothing is saved


class LearnerRun:
    """The copies of one learner, and their answers and errors up to each checkpoint."""

    def __init__(
        self,
        source: PreparedSource,
        learner: PreparedLearner,
        records: TrialRecords | AdaptivePool,
        best: NDArray[np.int32] | None = None,
    ) -> None:
        """Prepare round 1 of the trials of a source.

        ``records`` are those of each trial, or the pool from which an adaptive environment asks. ``best`` are the
        arms of least loss [pairs x trials], which fixed arms read.
        """
        self.learner, cell, arms = learner, source.cell_of_copies(learner), len(source.grid)
        self.copy_count = len(cell)
        padded = padded_indices(self.copy_count)  # whole tiles
        copies = source.copies(learner)
        best = np.zeros(len(padded), np.int32) if best is None else best[padded]
        start = start_copies(learner.definition.rule, arms, learner.start, cell[padded], best)
        self.checkpoints, shape = source.checkpoints, (len(source.checkpoints), self.copy_count)
        self.asked = AskedCounter(copies, records, self.checkpoints) if isinstance(records, AdaptivePool) else None
        setup = learner.backend, learner.with_aim(copies.take(padded)), start, arms
        self.simulation: NativeSimulation | JaxSimulation
        if learner.is_native:
            assert isinstance(records, TrialRecords)
            self.simulation = NativeSimulation(*setup, records.streams.stream_count)
        else:
            from exaul.engine.simulation import jax_chunks  # which imports JAX

            games = _adaptive_games(source, learner, records) if isinstance(records, AdaptivePool) else records
            self.simulation = jax_chunks.JaxSimulation(*setup, games)
        self.answered, self.wrong = np.zeros(shape, np.int64), np.zeros(shape)
        self.feedback_sums: dict[str, Floats] = {}  # of imperfect feedback, [B] by field of ``FeedbackSums``

    def saved_arrays(self) -> list[NDArray[Any]]:
        """Return the arrays that a save has."""
        asked = [] if self.asked is None else self.asked.saved_arrays()
        return [*self.simulation.saved_arrays(), self.answered, self.wrong, *asked]

    def submit(self, chunk: Chunk, records: native.RecordBlocks | None) -> None:
        """Begin to simulate a chunk, on its records if the host made them."""
        self.chunk = chunk
        self.simulation.submit(chunk, select_rates(self.learner.rates, chunk.block_numbers), records)

    def collect(self) -> None:
        """Wait for the chunk that was submitted; store the sums at its checkpoints, and those of the feedback.

        Raise BadInput if the learner is the user's, and its state is not finite.
        """
        sums, chunk = self.simulation.collect(), self.chunk
        if is_user_code(self.learner.name):
            from exaul.engine.simulation.user_code import check_finite  # which imports JAX

            check_finite(self.learner, self.simulation.state)
        if self.learner.feedback_model != PERFECT_FEEDBACK:
            sums_by_name = self.simulation.state.sums._asdict().items()
            self.feedback_sums = {name: np.array(x, np.float64)[: self.copy_count] for name, x in sums_by_name}
        is_checkpoint, rows = chunk.checkpoint_rounds > 0, chunk.checkpoint_slice(self.checkpoints)
        self.answered[rows] = sums.answered[is_checkpoint][:, : self.copy_count]
        self.wrong[rows] = sums.wrong[is_checkpoint][:, : self.copy_count]
        if self.asked is not None:
            self.asked.count(chunk, *(x[:, : self.copy_count] for x in self.simulation.questions))


def _adaptive_games(source: PreparedSource, learner: PreparedLearner, pool: AdaptivePool) -> AdaptiveGames:
    """Return the games of a learner's copies, in whole tiles, in an adaptive environment with its pool."""
    environment, copies = source.environment, source.copies(learner)
    assert isinstance(environment, Adaptive)
    padded = padded_indices(len(copies.alpha))
    values = np.broadcast_to(source.tunable_values, (len(copies.alpha), len(environment.tunables)))
    costs = copies.answer_cost[padded], copies.abstain_cost[padded]
    objective = Objective(copies.alpha[padded], *costs, values[padded], tunable_choices(environment, values[0]))
    keys = uniforms.trial_keys(source.sweep.seed, uniforms.ENVIRONMENT_STREAM, source.trials)
    draw_keys = uniforms.draw_keys(source.sweep.seed, source.trials, learner.feedback_model != PERFECT_FEEDBACK)
    return AdaptiveGames(environment, pool, objective, keys, draw_keys)


def simulate_batch(source: PreparedSource, on_rounds: OnRounds, saves: Saves = NO_SAVES) -> Totals:
    """Simulate the trials of a source, or the rest of them after the last save.

    Raises:
        MemoryError: the host or a device has too little memory for so many trials.
    """
    if machine.platform() == "cpu" and all(learner.is_native for learner in source.learners):
        return _simulate_passes(source, on_rounds, saves)
    import jax

    machine.forget_programs()  # a folder of logs of many lengths compiles one for each length
    try:
        with jax.enable_x64(True):
            return _simulate_passes(source, on_rounds, saves)
    except jax.errors.JaxRuntimeError as error:
        # NumPy raises MemoryError; JAX has no such class and names the status in the message
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(str(error)) from error


def _simulate_passes(source: PreparedSource, on_rounds: OnRounds, saves: Saves) -> Totals:
    """Simulate the learners in a pass with the search for the best arms, then the fixed arms, which need these.

    In an adaptive environment, where records depend on the answers, fixed arms are simulated like all others.
    """
    if source.is_adaptive:
        pool = source.adaptive_pool()
        return totals_of(source, simulate_pass(source, source.learners, pool, on_rounds, saves), None)
    fixed = [learner for learner in source.learners if learner.is_fixed]
    learners = [learner for learner in source.learners if not learner.is_fixed]
    records = source.trial_records()
    arguments = len(source.grid), source.checkpoints, source.answer_cost[:, None], source.abstain_cost[:, None]
    if machine.platform() == "cpu":
        counter = BestArmCounter(records.record_stream, *arguments)
    else:
        from exaul.engine.simulation.jax_chunks import DeviceBestArms  # which imports JAX

        counter = DeviceBestArms(records, *arguments)
    runs = simulate_pass(source, learners, records, on_rounds, saves, counter)
    losses, arms = counter.best()
    if fixed:
        runs |= simulate_pass(source, fixed, source.trial_records(), on_rounds, best=arms)
    return totals_of(source, runs, (losses, arms))


def simulate_pass(
    source: PreparedSource,
    learners: Sequence[PreparedLearner],
    records: TrialRecords | AdaptivePool,
    on_rounds: OnRounds,
    saves: Saves = NO_SAVES,
    counter: BestArmCounter | None = None,
    best: NDArray[np.int32] | None = None,
) -> dict[str, LearnerRun]:
    """Simulate some learners from round 1 to T, chunk by chunk; return the run of each by name.

    Args:
        source, records, best: as in ``LearnerRun``, which runs each of the ``learners``.
        on_rounds, saves: see ``OnRounds`` and ``Saves``.
        counter: searches for the best arms in these records.
    """
    runs = [LearnerRun(source, learner, records, best) for learner in learners]
    trial_records = records if isinstance(records, TrialRecords) else None
    simulated: list[BestArmCounter | LearnerRun] = [*runs] if counter is None else [counter, *runs]
    folder, batch = saves
    blocks, saved = folder.load_state(batch)

    def saved_arrays() -> list[NDArray[Any]]:
        read = [] if trial_records is None else [trial_records.records_read]
        return [*read, *(x for part in simulated for x in part.saved_arrays())]

    targets = saved_arrays() if blocks else []
    if [(x.shape, x.dtype) for x in targets] != [(x.shape, x.dtype) for x in saved]:
        raise BadInput("resume: the saved state has other shapes than expected; remove batches/now-* in the folder")
    for array, values in zip(targets, saved, strict=True):
        array[...] = values
    copy_count = sum(run.copy_count for run in runs)
    on_rounds(copy_count * min(blocks * BLOCK, int(source.checkpoints[-1])))
    # The host makes the records of a chunk while threads or devices still simulate the previous one:
    #
    #   host         make 1 | make 2     | make 3     |
    #   simulations         | simulate 1 | simulate 2 | ...
    #                       ^ submit 1   ^ collect 1, submit 2
    running: Chunk | None = None

    def collect() -> None:
        if running is not None:
            for part in simulated:
                part.collect()
            on_rounds(copy_count * running.round_count)

    game_count = len(trial_records.trials) if trial_records else max(run.copy_count for run in runs)
    on_host = source.is_adaptive or machine.platform() == "cpu" or any(run.learner.is_native for run in runs)
    for chunk in make_chunks(source.checkpoints, game_count, blocks, on_host):
        if running is not None and folder.is_save_due():
            collect()
            running = None
            folder.save_state(batch, int(chunk.block_numbers[0]), saved_arrays())
        chunk_records = trial_records.make(chunk) if trial_records and on_host else None
        collect()
        for part in simulated:
            part.submit(chunk, chunk_records)
        running = chunk
    collect()
    return {run.learner.name: run for run in runs}


LARGE_BATCH = 2**30  # bytes; batches larger than this are not faster on a CPU
STATE_COPIES = 3  # a state, the program's copy of it, and what is being saved
# in bytes, at most (measured)
PROCESS_BYTES, JAX_BYTES = 140 * 2**20, 300 * 2**20  # the process without JAX, and JAX
PROGRAM_BYTES, LOOP_BYTES = 70 * 2**20, 15 * 2**20  # a program of JAX, and a compiled loop
RECORD_BYTES, PENDING_BYTES = 50, 48  # a record of a chunk, and an answer that waits for feedback
ROW_BYTES, FIGURE_BYTES, CURVE_BYTES = 300, 2**21, 8 * 13  # a row of a table, all figures, a slice of curves


class Resources(NamedTuple):
    """What a batch needs at most, in bytes."""

    host: int  # the process, with the copies if they are simulated on its CPU
    device: int  # on another device
    disk: int  # the results of the sweep, and the saved state during the run


def largest_batch(source: PreparedSource) -> int:
    """Return the number of trials per batch: all, halved until the batch fits."""
    host, device = machine.USABLE_SHARE * machine.host_memory(), machine.USABLE_SHARE * machine.device_memory()
    if machine.platform() == "cpu":
        host = min(host, bound_resources(source, 1).host + LARGE_BATCH)
    count = len(source.trials)
    while count > 1:
        resources = bound_resources(source, count)
        if resources.host <= host and resources.device <= device:
            break
        count = -(-count // 2)
    return count


def bound_resources(source: PreparedSource, trials: int) -> Resources:
    """Bound the needs of a batch of some trials; the main term is ``copies x (3 x state + 16 x checkpoints)``.

    The bytes of a state follow from its shape, so that nothing is compiled.
    """
    on_cpu, is_adaptive, points = machine.platform() == "cpu", source.is_adaptive, len(source.checkpoints)
    arms, learners = len(source.grid), source.learners
    largest = max(len(learner.cells.pair) for learner in learners) * trials
    # one stream of records per copy if the environment is adaptive, per trial if records are shuffled, else one
    environment = source.environment
    streams = largest if isinstance(environment, Adaptive) else trials if environment.shuffled else 1
    states = sums = 0
    for learner in learners:
        copies = len(padded_indices(len(learner.cells.pair) * trials))
        states += copies * STATE_COPIES * _state_bytes(source, learner)
        # answers and errors; the bound of the risk; if adaptive, the least loss and the kinds of records
        sums += copies * points * (16 + 8 * (learner.definition.risk_bound is not None))
        sums += copies * points * 8 * (1 + len(ASKED)) * is_adaptive
    rounds = min(-(-source.horizon // BLOCK), blocks_per_chunk(largest if is_adaptive else trials)) * BLOCK
    # the records of one chunk are made while another is simulated
    chunk = rounds * streams * (12 * len(learners) if is_adaptive else 2 * RECORD_BYTES)
    hindsight = streams * arms * 8 * 2 * STATE_COPIES * (len(learners) if is_adaptive else 1)
    slices = max(largest, min(SLICE, largest * points)) * CURVE_BYTES
    tables = largest * (points * 8 + 2 * ROW_BYTES * len(learners)) + slices
    loops = sum(learner.is_native for learner in learners)
    programs = LOOP_BYTES * loops + (JAX_BYTES + PROGRAM_BYTES * (len(learners) - loops)) * (loops < len(learners))
    process = PROCESS_BYTES + machine.resident_bytes() + programs
    host = process + chunk + hindsight + sums + tables + states * on_cpu
    pools = 2 * 8 * sum(len(records.scores) for records in source.records) * len(learners)
    # programs for a device hold up to three times as much (as XLA compiles them for an H100)
    device = 0 if on_cpu else 3 * (states + hindsight * (not is_adaptive)) + 16 * largest * points + pools
    cells, all_trials = sum(len(learner.cells.pair) for learner in learners), len(source.trials)
    saved = states // STATE_COPIES + all_trials * cells * points * 16
    disk = ROW_BYTES * cells * (all_trials + points) + FIGURE_BYTES + saved
    return Resources(int(host), int(device), int(disk))


def _state_bytes(source: PreparedSource, learner: PreparedLearner) -> int:
    """Return the bytes of a copy's state: for each arm 8 of losses and 1 of sums, and the open answers."""
    state, feedback = 9 * len(source.grid), learner.feedback_model
    if isinstance(source.environment, Adaptive):  # draws of a block, and a distribution
        state += 8 * (BLOCK * source.environment.draws + 2 * len(source.grid))
    if isinstance(learner.definition.rule, Own):
        import jax

        from exaul.kernels.play import initial_states

        arms, zero = len(source.grid), np.zeros(1, np.int32)
        start = start_copies(learner.definition.rule, arms, learner.start, zero, zero)
        with jax.enable_x64(True):
            functions = learner.definition.rule.make(arms)
            shapes = jax.eval_shape(lambda: initial_states(functions, start))
        return state + sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))
    if feedback == PERFECT_FEEDBACK:
        return state
    return state + 8 * (feedback.delay + 1) + PENDING_BYTES * feedback.capacity(source.horizon)


def describe_needs(source: PreparedSource) -> str:
    """Describe the size, memory and disk of a sweep on one source, as text."""
    size = largest_batch(source)
    resources = bound_resources(source, size)
    cells = sum(len(learner.cells.pair) for learner in source.learners)
    copies = cells * len(source.trials)
    batches = -(-len(source.trials) // size)
    parts = f"{batches:,} batch{'es' * (batches > 1)} of at most {size:,} trials"
    on_device = f", {machine.show_bytes(resources.device)} on the device" * bool(resources.device)
    show, free = machine.show_bytes, machine.host_memory()
    rows = [
        ("cells", f"{cells:,} (alphas x lambdas x rates, of all learners)"),
        ("copies", f"{copies:,} (cells x trials), in {parts}"),
        ("rounds", f"{source.horizon:,} of each copy, {copies * source.horizon:,} in all"),
        ("memory", f"at most {show(resources.host)} ({show(free)} free){on_device}"),
        ("disk", f"at most {show(resources.disk)}, with the state while it runs"),
    ]
    return "\n".join(f"{name:<10}{text}" for name, text in rows)
