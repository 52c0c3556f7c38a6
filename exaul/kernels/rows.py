"""Learners as pure functions of one game, for ``jit``, ``vmap`` and ``scan`` in a program of your own.

    state = learner.init(params)
    state, decision = learner.decide(state, params, cut, u)
    state = learner.learn(state, params, cut, decision, error)

A learner is static and hashable. ``params`` is a NamedTuple of numbers, each of which may be batched: a sweep over
eta is a ``vmap`` like one over seeds. ``decide`` draws, and counts the rank of a score. ``learn`` is called once a
round: at once after an abstention, when its feedback comes after an answer.

Weights are kept in rows of 32 arms, as logarithms, so that nothing underflows at any rate. A round reads and writes
one number of each row, and all numbers of the row at the cut: O(sqrt(H)).

    losses [R, 32]   of the arms of a row, the least is 0
    offset [R]       what all arms of a row were charged besides
    mass   [R]       log of the sum of a row's weights, without its offset; changes only where arms are told apart
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from exaul.kernels.game import ROUNDS, Parameters
from exaul.kernels.learners.learner import Drawn, Fixed, Learner, Ranked, Sided, weight_of_last

ROW = 32


class Params(NamedTuple):
    """The numbers of a copy of a learner with weights, [] each; any may be an array under ``vmap``."""

    alpha: Any  # in (0, 1), target FDR
    lam: Any  # >= 0, weight of the FDR against abstaining (eq. 4)
    eta: Any  # > 0, learning rate
    gamma: Any  # >= 0, implicit exploration


class RankedParams(NamedTuple):
    """The numbers of a copy of ``aci-rank``, or of another learner that goes by ranks."""

    alpha: Any  # in (0, 1), target FDR
    lam: Any  # >= 0, of the loss (eq. 4); the learner does not read it
    step: Any  # in (0, 1], of the share
    start: Any  # the rule's state before round 1, a NamedTuple of numbers
    counts: Any  # [H] counts of recent records by cut before round 1


class FixedParams(NamedTuple):
    """The numbers of a fixed threshold."""

    alpha: Any  # in (0, 1), target FDR
    lam: Any  # >= 0, of the loss (eq. 4); the learner does not read it
    arm: Any  # int32 in 0..H-1


class GameDecision(NamedTuple):
    """A decision, and what ``learn`` needs of it."""

    answer: Any  # [] bool
    P: Any  # [] probability of answering, before the draw
    kept: Any = ()


class RowState(NamedTuple):
    """Weights ``w_k = exp(-eta L_k)`` in rows; see above."""

    losses: Any
    offset: Any
    mass: Any


class RankedState(NamedTuple):
    """The state of a rule on ranks."""

    rule: Any  # a NamedTuple of numbers
    counts: Any  # [H]


def numbers(count: int) -> Any:
    """Return 0 to ``count`` - 1, int32 as cuts are."""
    return jnp.arange(count, dtype=jnp.int32)


def loss_costs(params: Any) -> tuple[Any, Any]:
    """Return the loss of an answer per unit of error, and of an abstention (eq. 4)."""
    return params.lam / (1 + params.lam), (1 + params.lam * params.alpha) / (1 + params.lam)


def _parameters(params: Any, weight: Any) -> Parameters:
    """Return what a rule reads; the engine's numbers are these already."""
    if isinstance(params, Parameters):
        return params._replace(weight=weight)
    eta, gamma = (params.step, 0.0) if isinstance(params, RankedParams) else (params.eta, params.gamma)
    return Parameters(eta, gamma, params.alpha, *loss_costs(params), weight)


def _weighted(charge: Any, answer: Any, weight: Any) -> Any:
    """Weigh the charge of an abstention; with the weight 0 it is 0, even if no number divides the loss."""
    return jnp.where(answer, charge, jnp.where(weight > 0, charge * weight, 0.0))


@dataclass(frozen=True)
class GameLearner:
    """A learner for one game on H arms; the classes below differ in the type of its rule."""

    learner: Learner[Any]
    arms: int
    precision: str = "float64"  # of weights and their sums; losses and offsets are float64

    def _seen(self, decision: GameDecision, error: Any) -> Any:
        """Return the error that the learner may see: after an abstention none, unless feedback is full."""
        return error if self.learner.feedback == "full" else jnp.where(decision.answer, error, 0.0)


class _Rows(GameLearner):
    """Weights in rows."""

    def _bias(self) -> Any:
        """Return the logarithms of the first weights, [R, 32]; that of no arm is 0."""
        prior = getattr(self.learner.rule, "prior", None)
        last = 0.0 if prior is None else jnp.log(weight_of_last(prior, self.arms))
        number = numbers(-(-self.arms // ROW) * ROW)
        bias = jnp.where(number < self.arms, jnp.where(number == self.arms - 1, last, 0.0), -jnp.inf)
        return bias.reshape(-1, ROW)

    def init(self, params: Params) -> RowState:
        """Return the state before round 1."""
        bias = self._bias()
        return RowState(jnp.zeros(bias.shape), jnp.zeros(len(bias)), self._log_sum(bias))

    def _log_sum(self, logits: Any) -> Any:
        """Return the logarithm of the sum of exp over the last axis."""
        most = jnp.max(logits, axis=-1)
        each = jnp.exp((logits - most[..., None]).astype(self.precision))
        return most + jnp.log(jnp.sum(each, axis=-1)).astype(jnp.float64)

    def reweigh(self, state: RowState, params: Params) -> RowState:
        """Return the state at another eta, O(H): for rates that change now and then."""
        return state._replace(mass=self._log_sum(self._bias() - params.eta * state.losses))

    def masses(self, state: RowState, params: Params) -> Any:
        """Return the probabilities of the arms [H]."""
        logits = self._bias() - params.eta * (state.losses + state.offset[:, None])
        return jax.nn.softmax(logits.ravel()[: self.arms])

    def dense_losses(self, state: RowState) -> Any:
        """Return the cumulative charges of the arms [H]."""
        return (state.losses + state.offset[:, None]).ravel()[: self.arms]

    def _weights(self, state: RowState, params: Params, row: Any) -> tuple[Any, Any]:
        """Return the sums of all rows [R], and the weights of one row [32], up to a common factor."""
        logits = state.mass - params.eta * state.offset
        most = jnp.max(logits)
        inside = self._bias()[row] - params.eta * (state.losses[row] + state.offset[row])
        return tuple(jnp.exp((x - most).astype(self.precision)) for x in (logits, inside))  # type: ignore[return-value]

    def _sums(self, state: RowState, params: Params, cut: Any) -> tuple[Any, Any]:
        """Return the sums of the weights below the cut and above it."""
        row, below = cut // ROW, numbers(ROW) < cut % ROW
        rows, (whole, inside) = numbers(len(state.mass)), self._weights(state, params, row)
        low = jnp.sum(jnp.where(rows < row, whole, 0.0)) + jnp.sum(jnp.where(below, inside, 0.0))
        high = jnp.sum(jnp.where(rows > row, whole, 0.0)) + jnp.sum(jnp.where(below, 0.0, inside))
        return low.astype(jnp.float64), high.astype(jnp.float64)

    def _charge(self, state: RowState, params: Params, row: Any, charges: Any, offset: Any) -> RowState:
        """Charge the arms of one row [32], and others by their offset [R]."""
        bias = self._bias()[row]
        inside = state.losses[row] + charges
        least = jnp.min(jnp.where(jnp.isfinite(bias), inside, jnp.inf))
        inside -= least
        rows = numbers(len(state.mass))
        offset = state.offset + jnp.where(rows == row, least, offset)
        mass = state.mass.at[row].set(self._log_sum(bias - params.eta * inside))
        return RowState(state.losses.at[row].set(inside), offset, mass)


@jax.tree_util.register_static
class SidedGame(_Rows):
    """A learner that charges both sides of the cut (``exaul``, ``exaul-known``, ``ew``)."""

    def decide(self, state: RowState, params: Params, cut: Any, u: Any) -> tuple[RowState, GameDecision]:
        """Draw a decision on a record with a cut [] int32, from u [] uniform in [0, 1)."""
        chex.assert_rank([cut, u], 0)
        low, high = self._sums(state, params, cut)
        P, Q = low / (low + high), high / (low + high)  # Q is never 1 - P, which loses its digits
        return state, GameDecision(u < P, P, (P, Q))

    def learn(
        self, state: RowState, params: Params, cut: Any, decision: GameDecision, error: Any, weight: Any = 1.0
    ) -> RowState:
        """Return the state after a round (line "Update" of the paper's algorithms).

        ``error`` [] is not read after an abstention, except with full feedback. ``weight`` [] is that of an
        abstention, if only a share of the answers is learned.
        """
        rule = self.learner.rule
        assert isinstance(rule, Sided)
        error = self._seen(decision, error)
        under, over = rule.charge(jnp.where, *decision.kept, decision.answer, error, _parameters(params, 1.0))
        under, over = (_weighted(x, decision.answer, weight) for x in (under, over))
        row, rows = cut // ROW, numbers(len(state.mass))
        charges = jnp.where(numbers(ROW) < cut % ROW, under, over)
        return self._charge(state, params, row, charges, jnp.where(rows < row, under, over))


@jax.tree_util.register_static
class DrawnGame(_Rows):
    """A learner that draws an arm, and charges that arm only (``exp3-ix``)."""

    def decide(self, state: RowState, params: Params, cut: Any, u: Any) -> tuple[RowState, GameDecision]:
        """Draw a decision, as of ``SidedGame``."""
        chex.assert_rank([cut, u], 0)
        low, high = self._sums(state, params, cut)
        whole, _ = self._weights(state, params, 0)
        total, ends = low + high, jnp.cumsum(whole.astype(jnp.float64))
        row = jnp.minimum(jnp.sum(ends <= u * total, dtype=jnp.int32), len(ends) - 1)
        inside = self._weights(state, params, row)[1].astype(jnp.float64)
        along = jnp.where(row > 0, ends[row - 1], 0.0) + jnp.cumsum(inside)
        last = jnp.minimum(self.arms - row * ROW, ROW) - 1
        column = jnp.minimum(jnp.sum(along <= u * total, dtype=jnp.int32), last)
        arm, p = row * ROW + column, inside[column] / total
        middle = along[column] / total - p / 2  # of the interval of uniforms that draw this arm
        return state, GameDecision(arm < cut, low / total, (arm, p, middle))

    def learn(
        self, state: RowState, params: Params, cut: Any, decision: GameDecision, error: Any, weight: Any = 1.0
    ) -> RowState:
        """Return the state after a round, as of ``SidedGame``."""
        rule, (arm, p, _) = self.learner.rule, decision.kept
        assert isinstance(rule, Drawn)
        error = self._seen(decision, error)
        charge = rule.charge(jnp.where, p, decision.answer, error, _parameters(params, 1.0))
        charge = _weighted(charge, decision.answer, weight)
        charges = jnp.where(numbers(ROW) == arm % ROW, charge, 0.0)
        return self._charge(state, params, arm // ROW, charges, jnp.zeros(len(state.mass)))


@jax.tree_util.register_static
class RankedGame(GameLearner):
    """A learner that goes by the rank of a score among recent ones (``aci-rank``), O(H) a round."""

    def init(self, params: RankedParams) -> RankedState:
        """Return the state before round 1."""
        rule = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params.start)
        return RankedState(rule, jnp.asarray(params.counts, jnp.float64))

    def decide(
        self, state: RankedState, params: RankedParams, cut: Any, u: Any, waiting: Any = None
    ) -> tuple[RankedState, GameDecision]:
        """Decide as of ``SidedGame``, and count the record.

        ``waiting`` [] answers without feedback count as wrong (``docs/proofs.md``, D2), if given.
        """
        chex.assert_rank([cut, u], 0)
        rule, arms = self.learner.rule, numbers(self.arms)
        assert isinstance(rule, Ranked)
        total = jnp.sum(state.counts)
        high = jnp.sum(jnp.where(arms <= cut, state.counts, 0.0)) / total
        low = jnp.sum(jnp.where(arms < cut, state.counts, 0.0)) / total
        known = state.rule
        if waiting is not None:
            assert rule.reserve is not None
            known = rule.reserve(jnp.where, known, waiting, self.arms, _parameters(params, 1.0))
        P = rule.decide(jnp.where, known, high, low)
        counts = state.counts * rule.decay + jnp.where(arms == cut, 1.0, 0.0)
        return RankedState(state.rule, counts), GameDecision(u < P, P)

    def learn(
        self,
        state: RankedState,
        params: RankedParams,
        cut: Any,
        decision: GameDecision,
        error: Any,
        weight: Any = 1.0,
    ) -> RankedState:
        """Return the state after a round, as of ``SidedGame``."""
        rule = self.learner.rule
        assert isinstance(rule, Ranked)
        error = self._seen(decision, error)
        after = rule.learn(jnp.where, state.rule, decision.answer, error, _parameters(params, weight))
        return RankedState(after, state.counts)

    def masses(self, state: RankedState, params: RankedParams) -> Any:
        """Return the probabilities of the arms [H], whose mixture answers as the learner does."""
        rule = self.learner.rule
        assert isinstance(rule, Ranked)
        below = jnp.cumsum(state.counts)
        ranks = below / below[-1]
        return jnp.diff(rule.decide(jnp.where, state.rule, ranks[1:], ranks[:-1]), prepend=0.0, append=1.0)


@jax.tree_util.register_static
class FixedGame(GameLearner):
    """A fixed threshold."""

    def init(self, params: FixedParams) -> tuple[()]:
        """Return the empty state."""
        return ()

    def decide(self, state: tuple[()], params: FixedParams, cut: Any, u: Any) -> tuple[tuple[()], GameDecision]:
        """Answer if the record's score reaches the threshold; u is not read."""
        answer = params.arm < cut
        return state, GameDecision(answer, jnp.where(answer, 1.0, 0.0))

    def learn(
        self, state: tuple[()], params: FixedParams, cut: Any, decision: GameDecision, error: Any, weight: Any = 1.0
    ) -> tuple[()]:
        """Learn nothing."""
        return state

    def masses(self, state: tuple[()], params: FixedParams) -> Any:
        """Return all probability on the arm, [H]."""
        return jax.nn.one_hot(params.arm, self.arms, dtype=jnp.float64)


GAMES: dict[type, type[GameLearner]] = {Sided: SidedGame, Drawn: DrawnGame, Ranked: RankedGame, Fixed: FixedGame}


def play(learner: Any, params: Any, cuts: Any, errors: Any, uniforms: Any) -> Any:
    """Play one game of T rounds, in which each answer gets its feedback at once.

    ``vmap`` it over any argument but the learner.

    Args:
        learner: from ``make``, or an object with ``init``, ``decide`` and ``learn`` as above.
        params: the learner's numbers; eta and gamma may be [K], for blocks of 256 rounds.
        cuts: [T] int32 in 1..H-1.
        errors: [T] in [0, 1], 1 if the answer is wrong.
        uniforms: [T] uniform in [0, 1).

    Returns:
        [T] bool, the rounds that were answered.
    """
    chex.assert_equal_shape([cuts, errors, uniforms])

    def step(state: Any, x: Any) -> tuple[Any, Any]:
        t, cut, error, u = x
        now, state = at_block(learner, params, state, t)
        state, decision = learner.decide(state, now, cut, u)
        return learner.learn(state, now, cut, decision, error), decision.answer

    return jax.lax.scan(step, learner.init(params), (jnp.arange(len(cuts)), cuts, errors, uniforms))[1]


def at_block(learner: Any, params: Any, state: Any, t: Any) -> tuple[Any, Any]:
    """Return the numbers of round t, from 0, and the state at them; eta and gamma may be [K], for blocks."""
    if jnp.ndim(getattr(params, "eta", 0.0)) == 0:
        return params, state
    k = t // ROUNDS
    gamma = jnp.broadcast_to(params.gamma, params.eta.shape)
    now = params._replace(eta=jnp.asarray(params.eta)[k], gamma=gamma[k])
    return now, jax.lax.cond(t % ROUNDS == 0, lambda x: learner.reweigh(x, now), lambda x: x, state)


def regret(learner: Any, params: Any, cuts: Any, errors: Any, answers: Any) -> Any:
    """Return the regret after each round [T], against the threshold of least loss so far (eq. 3).

    Args:
        learner: of the game, whose ``arms`` are the thresholds.
        params: its numbers, of which alpha and lam define the loss (eq. 4).
        cuts, errors: as of ``play``.
        answers: [T] bool, from ``play``.
    """
    chex.assert_equal_shape([cuts, errors, answers])
    answer_cost, abstain_cost = loss_costs(params)

    def step(carry: Any, record: Any) -> tuple[Any, Any]:
        count, wrong, loss = carry
        cut, error, answer = record
        count, wrong = count.at[cut].add(1.0), wrong.at[cut].add(error)
        loss = loss + jnp.where(answer, answer_cost * error, abstain_cost)
        # arm k abstains on the cuts up to k, and answers the others
        missed = jnp.sum(wrong) - jnp.cumsum(wrong)
        best = jnp.min(answer_cost * missed + abstain_cost * jnp.cumsum(count))
        return (count, wrong, loss), loss - best

    nothing = jnp.zeros(learner.arms)
    return jax.lax.scan(step, (nothing, nothing, jnp.zeros(())), (cuts, errors, answers))[1]
