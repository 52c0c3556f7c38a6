"""Simulate copies and find best arms in JAX: a chunk is one compiled program, for every kind of environment.

simulate_chunk     jit: compiled once per learner, environment and sizes
  scan             K blocks: uniforms are drawn, and the records of an oblivious environment made, here
    vmap           B copies
      advance      256 rounds of one copy on given records
      or scan      256 rounds of one game in an adaptive environment: ask, decide, learn, see

Learner and adaptive environment run in one program because each needs the other in every round.
"""

from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exaul.engine.environments.adaptive import Objective
from exaul.engine.simulation.chunks import AdaptiveGames, BestArmCounter, Chunk, TrialRecords
from exaul.kernels.game import BLOCK, Array, Block, Copies, ImperfectFeedback, Rates, RuleParams, Start, Sums
from exaul.kernels.native.backend import RecordBlocks, threads
from exaul.kernels.play import COPY_AXES, Backend, advance_copies, initial_states, play_round, reweigh
from exaul.kernels.records import Streams, read_block
from exaul.kernels.uniforms import Draws, uniform

OBJECTIVE_AXES = Objective(0, 0, 0, 0, None)  # of ``vmap``
SUMMED_ROUNDS = 31  # rounds of a sum: from 32 on, XLA shares a sum among the threads of a warp


class Carry(NamedTuple):
    """All that changes while B copies are simulated."""

    learner_and_state: Any  # its functions of one game, which are static, and its state, [B, ...]
    environment: Any  # state of an adaptive environment, [B, ...]
    sums: Sums  # [B]
    records_read: Any  # [P, R], number of records of each pool of an oblivious environment that were read so far


# ``carry`` is donated: the new one is written into the buffers of the old one, so that the weights exist once. The
# caller must not use the old one again.
@partial(jax.jit, static_argnames=("environment", "plan"), donate_argnames=("carry",))
def simulate_chunk(
    environment: Any,
    plan: Any,
    carry: Carry,
    chunk: Chunk,
    rates: Rates,
    copies: Copies,
    keys: Draws,
    inputs: tuple[Any, ...],
    imperfect: ImperfectFeedback | None,
) -> tuple[Carry, tuple[Sums, tuple[Any, ...]]]:
    """Simulate K blocks: the one compiled program of a learner.

    Args:
        environment: the ``Adaptive`` environment, else None.
        plan: the ``StreamPlan`` of an oblivious environment, else None.
        carry: of B copies.
        chunk: K blocks.
        rates: [K].
        copies: [B].
        keys: [U], of the learners' draws.
        inputs: the other fields of the streams; or objective, keys and pool of an adaptive environment.
        imperfect: as in ``RuleParams``.

    Returns:
        The carry after the chunk, the sums [K, S, B] at its checkpoints, and in an adaptive environment the
        cuts and errors [K, C, B] that were asked.
    """

    def one_block(carry: Carry, x: tuple[Chunk, Rates]) -> tuple[Carry, tuple[Sums, Any]]:
        chunk, rates = x  # of one block
        params = copies.rule_params(rates, chunk.block_numbers, imperfect)
        draws = Draws(*(None if key is None else _uniforms(key, chunk, copies.draw_stream) for key in keys))
        given = copies, carry, chunk, params, draws
        if environment is None:
            carry, answered, errors, asked = _simulate_records(Streams(plan, *inputs), *given)
        else:
            carry, answered, errors, asked = _simulate_games(environment, inputs, *given)
        # Errors are summed within the block first, then added to the sums. The bits depend on this grouping, which
        # is the same for all chunks and checkpoints.
        cumulative = Sums(
            carry.sums.answered[None] + jnp.cumsum(answered, axis=0, dtype=jnp.int64),
            carry.sums.wrong[None] + jnp.cumsum(jnp.where(answered, errors, 0.0), axis=0),
        )
        at_checkpoints = jax.tree.map(lambda x: x[chunk.checkpoint_rounds - 1], cumulative)
        return carry._replace(sums=jax.tree.map(lambda x: x[-1], cumulative)), (at_checkpoints, asked)

    return lax.scan(one_block, carry, (chunk, rates))


def _uniforms(key: Any, chunk: Chunk, streams: Array, first: int = 0) -> Array:
    """Return the uniforms [C, B] of a block from the counter ``first`` on; ``streams`` [B] index the keys [U]."""
    # [C, 1] counters and [1, U] keys broadcast to uniforms [C, U]
    counters = jnp.arange(BLOCK, dtype=jnp.uint32)[:, None] + np.uint32(first)
    return uniform(jax.tree.map(lambda x: x[None], key), chunk.block_numbers, counters)[:, streams]


def _simulate_records(
    streams: Streams, copies: Copies, carry: Carry, chunk: Chunk, params: RuleParams, draws: Draws
) -> tuple[Carry, Array, Array, tuple[Any, ...]]:
    """Simulate a block of an oblivious environment. Return carry, answers [C, B], errors [C, B or 1], and ()."""
    cuts, errors, records_read = read_block(streams, carry.records_read, chunk.block_numbers)
    learner, state = carry.learner_and_state
    is_shared = cuts.shape[1] == 1  # all copies read one stream: its records are not repeated for every copy
    cuts, errors = (x[:, 0] if is_shared else x[:, copies.record_stream] for x in (cuts, errors))
    state, answered = advance_copies(learner, state, Block(cuts, errors, draws, chunk.active), params, is_shared)
    carry = carry._replace(learner_and_state=(learner, state), records_read=records_read)
    return carry, answered, errors.reshape(BLOCK, -1), ()


def _simulate_games(
    environment: Any, inputs: Any, copies: Copies, carry: Carry, chunk: Chunk, params: RuleParams, draws: Draws
) -> tuple[Carry, Array, Array, tuple[Any, ...]]:
    """Simulate a block in an adaptive environment. Return the carry, answers [C, B], errors, and (cuts, errors)."""
    objective, key, pool = inputs
    # draw i of a round uses the counters from 256 i on: no two draws share one
    parts = [_uniforms(key, chunk, copies.draw_stream, BLOCK * i) for i in range(environment.draws)]
    env_draws = jnp.stack(parts, axis=-1) if parts else jnp.zeros((BLOCK, len(copies.draw_stream), 0))
    learner, state = carry.learner_and_state

    def one_game(learner_state: Any, state: Any, params: RuleParams, objective: Objective, *x: Any) -> Any:
        """Simulate the block of one game, with uniforms [C] of the learner and [C, .] of the environment."""

        def one_round(states: tuple[Any, Any], x: tuple[Any, ...]) -> Any:
            return play_round(learner, environment, pool, states, params, objective, *x)

        return lax.scan(one_round, (reweigh(learner, learner_state, params), state), (*x, chunk.active))

    games = jax.vmap(one_game, (0, 0, COPY_AXES, OBJECTIVE_AXES, 1, 1), (0, 1))
    states, (answered, cuts, errors) = games(state, carry.environment, params, objective, draws, env_draws)
    carry = carry._replace(learner_and_state=(learner, states[0]), environment=states[1])
    return carry, answered, errors, (cuts, errors)


def _sum_by_cut(arms: int, cuts: jax.Array, amounts: jax.Array) -> jax.Array:
    """Return the sum of the amounts [C] of the rounds of each cut, [H]."""
    cut = jnp.arange(arms, dtype=jnp.int32)[None]
    parts = [slice(i, i + SUMMED_ROUNDS) for i in range(0, len(cuts), SUMMED_ROUNDS)]
    return reduce(jnp.add, [jnp.sum(jnp.where(cuts[x, None] == cut, amounts[x, None], 0.0), axis=0) for x in parts])


@partial(jax.jit, static_argnames=("plan",), donate_argnames=("carry",))
def count_chunk(
    plan: Any, carry: tuple[Array, Array], chunk: Chunk, stream_fields: tuple[Any, ...], costs: tuple[Array, Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Count the records of K blocks by cut, and find the arms of least loss on the way, as ``find_best_arms`` does.

    ``carry`` is the number of rounds by cut and the sum of their errors [2, R, H], and the records read, as in
    ``Carry``. Return it after the chunk, and least losses and arms [K, S, pairs, R] at its checkpoints.
    """
    answer_cost, abstain_cost = (cost[:, :, None] for cost in costs)

    def count_block(carry: tuple[Array, Array], chunk: Chunk) -> Any:
        by_cut, records_read = carry
        cuts, errors, records_read = read_block(Streams(plan, *stream_fields), records_read, chunk.block_numbers)
        cuts, amounts = cuts.T, jnp.stack([jnp.ones_like(errors.T), errors.T])

        def sums_after(count: Array) -> Array:
            """Return the sums after ``count`` rounds of the block."""
            counted = jnp.where(jnp.arange(BLOCK, dtype=jnp.int32) < count, amounts, 0.0)
            # One after the other: for both sums at once, XLA's kernel takes ten times as long (measured).
            return by_cut + lax.map(partial(jax.vmap(partial(_sum_by_cut, by_cut.shape[2])), cuts), counted)

        def find(count: Array) -> tuple[Array, Array]:
            abstained, below = jnp.cumsum(sums_after(count), axis=2)[:, None]
            losses = answer_cost * (below[..., -1:] - below) + abstain_cost * abstained  # [pairs, R, H]
            return jnp.min(losses, axis=2), jnp.argmin(losses, axis=2).astype(jnp.int32)

        shape = len(costs[0]), len(cuts)
        zeros = jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
        at_checkpoints = lax.map(lambda y: lax.cond(y > 0, find, lambda _: zeros, y), chunk.checkpoint_rounds)
        return (sums_after(jnp.sum(chunk.active, dtype=jnp.int32)), records_read), at_checkpoints

    return lax.scan(count_block, carry, chunk)


class DevicePart:
    """A part of a batch whose arrays are on a device, in the tree ``carry``."""

    carry: Any

    def launch(self, program: Any, static: Any, *arguments: Any) -> None:
        """Call a program on a thread, so that those of all parts compile side by side. ``result()`` waits."""

        def call() -> Any:
            with jax.enable_x64(True):  # in this thread; arrays of NumPy, from a save, cannot be donated
                self.carry, outputs = program(*static, jax.tree.map(jnp.asarray, self.carry), *arguments)
            return outputs

        self.result = threads().submit(call).result

    def saved_arrays(self) -> list[Any]:
        """Return the arrays that a save has, from which the next chunk begins, after moving them to the host."""
        self.carry = jax.tree.map(np.array, self.carry)  # where a save can be written to them
        return jax.tree.leaves(self.carry)


class DeviceBestArms(DevicePart, BestArmCounter):
    """The arms of least loss, counted on a device from records that it makes: a host would fall behind."""

    def __init__(self, records: TrialRecords, *arguments: Any) -> None:
        """Prepare round 1; ``arguments`` are those of ``BestArmCounter`` after the first."""
        super().__init__(records.record_stream, *arguments)
        self.records = records
        self.carry = self.by_cut, records.streams.no_records_read()

    def saved_arrays(self) -> list[Any]:
        """Return the arrays that a save has."""
        return [*super().saved_arrays(), self.best_loss, self.best_arm]

    def submit(self, chunk: Chunk, records: RecordBlocks | None) -> None:
        """Begin to count a chunk."""
        self.chunk, plan, (stream_fields, _) = chunk, self.records.streams.plan, self.records.on_device
        self.launch(count_chunk, (plan,), chunk, stream_fields, self.costs)

    def collect(self) -> None:
        """Wait for the chunk."""
        self.keep(self.chunk, *(np.asarray(x)[self.chunk.checkpoint_rounds > 0] for x in self.result()))


class JaxSimulation(DevicePart):
    """B copies on a backend that JAX traces, with the methods of ``NativeSimulation``."""

    def __init__(
        self, backend: Backend, copies: Copies, start: Start, arms: int, records: TrialRecords | AdaptiveGames
    ) -> None:
        self.imperfect, count = backend.imperfect, len(start.arm)
        self.copies = Copies(*map(jnp.asarray, copies))
        learner = backend.make(arms)
        first = learner, initial_states(learner, start)
        sums = Sums(np.zeros(count, np.int64), np.zeros(count))
        if isinstance(records, AdaptiveGames):
            state = records.environment.init(jax.tree.map(jnp.asarray, records.pool))
            initial = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x)[None], count, axis=0), state)
            self.carry = Carry(first, initial, sums, ())
            self.static: tuple[Any, Any] = records.environment, None
            self.draw_keys, self.inputs = records.draw_keys, (records.objective, records.keys, records.pool)
        else:
            self.carry = Carry(first, (), sums, jnp.asarray(records.streams.no_records_read()))
            self.static, (self.inputs, self.draw_keys) = (None, records.streams.plan), records.on_device

    @property
    def state(self) -> Any:
        """The state of the learner, [B, ...]; ``submit`` invalidates it."""
        return self.carry.learner_and_state[1]

    def submit(self, chunk: Chunk, rates: Rates, records: RecordBlocks | None) -> None:
        """Begin to simulate a chunk; the device makes its own records."""
        constant = self.copies, self.draw_keys, self.inputs, self.imperfect
        self.launch(simulate_chunk, self.static, chunk, rates, *constant)

    def collect(self) -> Sums:
        """Wait for the chunk."""
        sums, questions = self.result()
        self.questions = tuple(np.asarray(x).reshape(-1, x.shape[-1]) for x in questions)  # cuts, errors [K C, B]
        return Sums(*(np.asarray(x) for x in sums))
