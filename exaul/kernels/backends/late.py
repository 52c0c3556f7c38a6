"""The dense backend with imperfect thumbs, in JAX: a round's second half comes some rounds after its first.

It plays the game of ``online/copies.py`` for B copies at once, and against environments that answer back.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.backends import dense
from exaul.kernels.backends.backend import Backend, Decision, Turns
from exaul.kernels.game import ROUNDS, Block, Outcome, Parameters
from exaul.kernels.learners.learner import Learner
from exaul.kernels.thumbs import RATED, TAKEN, Sums, Thumbs, abstained, abstention_counts, opened, settled, thumb
from exaul.kernels.uniforms import IMPERFECT


class State(NamedTuple):
    """All that changes as B copies play, and what their thumbs are like."""

    copies: Any  # state, or carry, of the dense backend
    kept: tuple[Any, ...]  # [delay + 1, B] each, who waits at each place: kind, said, cut, what was kept
    sums: Sums  # [B] each
    thumbs: Any  # [5], as of ``exaul.kernels.thumbs.thumb``
    eta: Any  # [K] of the horizon's blocks
    gamma: Any  # [K]


def make(learner: Learner[Any], precision: str, how: Thumbs) -> Backend | None:
    """Make the backend of a learner that sees the errors of its own answers alone, or none.

    Args:
        learner: with a rule of any type but ``Own``.
        precision: dtype of the weights and their sums; the state is that of the dense backend, and of each round
            until its thumb is due some numbers [B].
        how: how answers are rated.

    Returns:
        The backend, or None where the rule's rounds cannot be cut in two (section "Online Conformal Abstention
        Under Adversarial Bandit Feedback" of the paper: who sees every label needs no thumbs). Its ``init`` needs
        the rates eta [K] and gamma [K] of all blocks of the horizon as well, for what is learned is counted, not
        played. Uniforms are [C, 3 U], those of thumbs and of delays last; in ``turns`` [3, B].
    """
    made = _made(learner, precision, how.delay, how.reserve)
    return None if made is None else Backend(partial(_init, made[0], how), *made[1:])


@cache  # of what is compiled: all other numbers are traced
def _made(
    learner: Learner[Any], precision: str, delay: int, reserve: bool
) -> tuple[Backend, Callable[..., Any], Turns] | None:
    inner = dense.make(learner, precision)
    if inner is None or inner.turns is None or inner.turns.decide is None:
        return None
    own = _turns(delay, reserve, inner.turns)

    def advance(state: State, block: Block, parameters: Parameters) -> tuple[State, Outcome]:
        each = block.uniforms.shape[-1] // len(IMPERFECT)
        cuts, errors = block.cuts[:, parameters.record], block.errors[:, parameters.record]
        drawn = [block.uniforms[:, parameters.draw + n * each] for n in range(len(IMPERFECT))]
        rounds = Block(cuts, errors, jnp.stack(drawn, axis=1), block.active)
        carry, (outcome, _) = lax.scan(
            lambda carry, x: own.play(carry, x, parameters), own.begin(state, parameters), rounds
        )
        return own.end(state, carry, ()), outcome

    return inner, advance, own


def _init(
    inner: Backend, how: Thumbs, arms: int, best: NDArray[Any], streams: int, eta: ArrayLike, gamma: ArrayLike
) -> State:
    assert inner.turns is not None
    assert inner.turns.decide is not None
    copies, nothing = inner.init(arms, best, streams), jnp.zeros(len(best))
    no_round = Block(jnp.ones(len(best), jnp.int32), nothing, nothing, True)
    of = Parameters(1.0, 0.0, nothing, nothing, nothing, 0, 0)
    _, first = jax.eval_shape(lambda: inner.turns.decide(inner.turns.begin(copies, of), no_round, of, None))  # type: ignore[union-attr,misc]
    kept = nothing, nothing, no_round.cuts, *(jnp.zeros(x.shape, x.dtype) for x in first.kept)
    rows = tuple(jnp.zeros((how.delay + 1, *x.shape), x.dtype) for x in kept)
    sums = Sums(*(jnp.zeros(len(best), jnp.float64) for _ in Sums._fields))
    numbers = (jnp.asarray(x, jnp.float64) for x in (how.numbers, eta, gamma))
    return State(copies, rows, sums, *numbers)


def _turns(delay: int, reserve: bool, of: Turns) -> Turns:
    """The turns with late thumbs, from those of the dense backend."""
    decide, learn, close = of.decide, of.learn, of.close
    assert decide is not None
    assert learn is not None

    def rates(state: State, parameters: Parameters) -> Parameters:
        block = jnp.minimum(state.sums.learned.astype(jnp.int32) // ROUNDS, len(state.eta) - 1)
        return parameters._replace(eta=state.eta[block], gamma=state.gamma[block])

    def learned(state: State, x: Block, decision: Decision, parameters: Parameters) -> State:
        """Learn where ``x.active`` [B]; the sums are brought up to date elsewhere."""
        copies = learn(state.copies, x, decision, rates(state, parameters))
        if close is not None:
            ends = x.active & ((state.sums.learned.astype(jnp.int32) + 1) % ROUNDS == 0)
            copies = jax.tree.map(partial(jnp.where, ends), close(copies), copies)
        return state._replace(copies=copies)

    def play(state: State, x: Block, parameters: Parameters) -> tuple[State, tuple[Outcome, tuple[Any, ...]]]:
        u, coin, when = x.uniforms
        x = x._replace(uniforms=u)
        waiting = state.sums.waiting if reserve else None
        copies, now = decide(state.copies, x, rates(state, parameters), waiting)
        state = state._replace(copies=copies)
        kind, said = thumb(jnp.where, now.answered, x.errors, coin, state.thumbs)
        place = jnp.where(x.active, (when * (delay + 1)).astype(jnp.int32), delay)
        new = tuple(
            one.astype(all_.dtype) for all_, one in zip(state.kept, (kind, said, x.cuts, *now.kept), strict=True)
        )
        others = (jnp.take_along_axis(all_, place[None], axis=0)[0] for all_ in state.kept)
        at_once = place == delay
        then, heard, cuts, *kept = (jnp.where(at_once, *pair) for pair in zip(new, others, strict=True))
        lanes = jnp.arange(len(u))
        rows = tuple(all_.at[place, lanes].set(one) for all_, one in zip(state.kept, new, strict=True))

        counts = x.active & ~now.answered & abstention_counts(state.sums, coin, state.thumbs)
        state = learned(state, x._replace(active=counts), now, parameters)
        state = state._replace(sums=opened(jnp.where, abstained(jnp.where, state.sums, counts), kind))

        comes = x.active & ((then == RATED) | (then == TAKEN))
        late = Decision(comes, jnp.zeros_like(heard), tuple(kept))
        state = learned(state, Block(cuts, heard, u, comes), late, parameters)
        sums = settled(jnp.where, state.sums, jnp.where(x.active, then, 0.0), heard)
        state = state._replace(kept=rows, sums=sums)
        return state, (Outcome(now.answered, now.probability, now.middle), ())

    def begin(state: State, parameters: Parameters) -> State:
        return state._replace(copies=of.begin(state.copies, parameters))

    def end(state: State, carry: State, changes: Any) -> State:
        return carry if close is not None else carry._replace(copies=of.end(state.copies, carry.copies, ()))

    def masses(carry: State, parameters: Parameters) -> jax.Array:
        found: jax.Array = of.masses(carry.copies, rates(carry, parameters))
        return found

    return Turns(begin, play, end, masses)
