"""Learners as pure functions of one game, for ``jit``, ``vmap`` and ``scan`` in a program of your own.

    state = learner.init(params)
    state, decision = learner.decide(state, params, cut, u)
    state = learner.learn(state, params, cut, decision, error)

A learner is static and hashable. ``params`` is a NamedTuple of numbers, each of which may be batched: a sweep over
eta is a ``vmap`` like one over seeds. ``decide`` draws and, for a rule on ranks, counts the record. ``learn`` is
called once a round: after an abstention at once, after an answer when its feedback comes. The engine's loop calls
these functions as well. What a learner does in a round stands here; how its weights are kept, in ``rows.py`` and
``dense.py``.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from exaul.kernels.game import ROUNDS, Block, Parameters
from exaul.kernels.learners.learner import Drawn, Fixed, Learner, Own, Ranked, Sided
from exaul.kernels.uniforms import Draws


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


class Decision(NamedTuple):
    """A decision, and what ``learn`` needs of it."""

    answer: Any  # [] bool
    P: Any  # [] probability of answering, before the draw
    kept: Any = ()  # of what ``learn`` needs: P and Q, or the arm and its probability


class RankedState(NamedTuple):
    """The state of a rule on ranks."""

    rule: Any  # a NamedTuple of numbers
    counts: Any  # [H]


def loss_costs(params: Any) -> tuple[Any, Any]:
    """Return the loss of an answer per unit of error, and of an abstention (eq. 4)."""
    if isinstance(params, Parameters):
        return params.answer_cost, params.abstain_cost
    return params.lam / (1 + params.lam), (1 + params.lam * params.alpha) / (1 + params.lam)


def _parameters(params: Any, weight: Any) -> Parameters:
    """Return what a rule reads; the engine's numbers are these already."""
    if isinstance(params, Parameters):
        return params._replace(weight=weight)
    eta, gamma = (params.step, 0.0) if isinstance(params, RankedParams) else (params.eta, params.gamma)
    return Parameters(eta, gamma, params.alpha, *loss_costs(params), weight)


class Late:
    """A learner whose ``decide`` takes all draws of a round, and whose ``learn`` takes a weight, 0 for no round."""


class ByBlocks:
    """A learner that computes whole blocks of rounds."""

    advance: Any  # ``advance(state, block, params)``, as of ``backend.advance``


@dataclass(frozen=True)
class GameLearner:
    """A learner for one game on H arms; the classes below differ in the type of its rule."""

    learner: Learner[Any]
    arms: int

    def _seen(self, decision: Decision, error: Any) -> Any:
        """Return the error that the learner may see: after an abstention none, unless feedback is full."""
        return error if self.learner.feedback == "full" else jnp.where(decision.answer, error, 0.0)


@dataclass(frozen=True)
class _WeightedGame(GameLearner):
    """A learner with weights, which ``Rows`` and ``Dense`` keep."""

    weights: Any

    def init(self, params: Params) -> Any:
        """Return the state before round 1: no losses (line 2 of every algorithm of the paper)."""
        return self.weights.init()

    def reweigh(self, state: Any, params: Params) -> Any:
        """Return the state at another eta, O(H): for rates that change now and then."""
        return self.weights.reweigh(state, params.eta)

    def masses(self, state: Any, params: Params) -> Any:
        """Return the probabilities of the arms [H]."""
        return self.weights.masses(state, params.eta)

    def losses(self, state: Any) -> Any:
        """Return the cumulative charges of the arms [H]."""
        return self.weights.losses(state)

    def _charges(self, odds: tuple[Any, ...], params: Params, decision: Decision, error: Any, weight: Any) -> Any:
        """Return the rule's charges for a round, from the probabilities that it reads."""
        given = decision.answer, self._seen(decision, error), _parameters(params, 1.0)
        charges = self.learner.rule.charge(jnp.where, *odds, *given)

        def weighed(charge: Any) -> Any:
            # with the weight 0 an abstention is charged 0, even if no number divides the loss
            return jnp.where(decision.answer, charge, jnp.where(weight > 0, charge * weight, 0.0))

        return jax.tree.map(weighed, charges)


@jax.tree_util.register_static
class SidedGame(_WeightedGame):
    """A learner that charges both sides of the cut (``exaul``, ``exaul-known``, ``ew``)."""

    def decide(self, state: Any, params: Params, cut: Any, u: Any, waiting: Any = None) -> tuple[Any, Decision]:
        """Draw a decision on a record with a cut [] int32, from u [] uniform in [0, 1).

        ``waiting`` [] is the number of answers without feedback, which these learners do not read.
        """
        chex.assert_rank([cut, u], 0)
        low, high = self.weights.sums(state, params.eta, cut)
        P, Q = low / (low + high), high / (low + high)  # Q is never 1 - P, which loses its digits
        return state, Decision(u < P, P, (P, Q))

    def learn(self, state: Any, params: Params, cut: Any, decision: Decision, error: Any, weight: Any = 1.0) -> Any:
        """Return the state after a round (line "Update" of the paper's algorithms).

        ``error`` [] is not read after an abstention, except with full feedback. ``weight`` [] is that of an
        abstention, if only a share of the answers is learned; 0 changes nothing.
        """
        under, over = self._charges(decision.kept, params, decision, error, weight)
        return self.weights.charge_sides(state, params.eta, cut, under, over)


@jax.tree_util.register_static
class DrawnGame(_WeightedGame):
    """A learner that draws an arm, and charges that arm only (``exp3-ix``)."""

    def decide(self, state: Any, params: Params, cut: Any, u: Any, waiting: Any = None) -> tuple[Any, Decision]:
        """Draw a decision, as of ``SidedGame``."""
        chex.assert_rank([cut, u], 0)
        arm, p, P = self.weights.draw(state, params.eta, cut, u)
        return state, Decision(arm < cut, P, (arm, p))

    def learn(self, state: Any, params: Params, cut: Any, decision: Decision, error: Any, weight: Any = 1.0) -> Any:
        """Return the state after a round, as of ``SidedGame``."""
        arm, p = decision.kept
        charge = self._charges((p,), params, decision, error, weight)
        return self.weights.charge_arm(state, params.eta, arm, charge)


@jax.tree_util.register_static
class RankedGame(GameLearner):
    """A learner that goes by the rank of a score among recent ones (``aci-rank``), O(H) a round."""

    def init(self, params: RankedParams) -> RankedState:
        """Return the state before round 1."""
        rule = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params.start)
        return RankedState(rule, jnp.asarray(params.counts, jnp.float64))

    def decide(
        self, state: RankedState, params: RankedParams, cut: Any, u: Any, waiting: Any = None
    ) -> tuple[RankedState, Decision]:
        """Decide as of ``SidedGame``, and count the record.

        ``waiting`` [] answers without feedback count as wrong (``docs/proofs.md``, D2), if given.
        """
        chex.assert_rank([cut, u], 0)
        rule, arms = self.learner.rule, jnp.arange(self.arms, dtype=jnp.int32)
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
        return RankedState(state.rule, counts), Decision(u < P, P)

    def learn(
        self,
        state: RankedState,
        params: RankedParams,
        cut: Any,
        decision: Decision,
        error: Any,
        weight: Any = 1.0,
    ) -> RankedState:
        """Return the state after a round, as of ``SidedGame``."""
        rule = self.learner.rule
        assert isinstance(rule, Ranked)
        error = self._seen(decision, error)
        after = rule.learn(jnp.where, state.rule, decision.answer, error, _parameters(params, weight))
        learns = decision.answer | (weight > 0)
        return RankedState(jax.tree.map(partial(jnp.where, learns), after, state.rule), state.counts)

    def masses(self, state: RankedState, params: RankedParams) -> Any:
        """Return the probabilities of the arms [H], whose mixture answers as the learner does."""
        rule = self.learner.rule
        assert isinstance(rule, Ranked)
        below = jnp.cumsum(state.counts)
        ranks = below / below[-1]
        return jnp.diff(rule.decide(jnp.where, state.rule, ranks[1:], ranks[:-1]), prepend=0.0, append=1.0)


@jax.tree_util.register_static
@dataclass(frozen=True)
class FixedGame(GameLearner):
    """A fixed threshold; its state is the arm. All on H arms are equal, so that they share a compiled program."""

    learner: Learner[Any] = field(compare=False)

    def init(self, params: FixedParams) -> Any:
        """Return the arm."""
        return jnp.asarray(params.arm, jnp.int32)

    def decide(
        self, state: Any, params: FixedParams, cut: Any, u: Any, waiting: Any = None
    ) -> tuple[Any, Decision]:
        """Answer if the record's score reaches the threshold; u is not read."""
        answer = state < cut
        return state, Decision(answer, jnp.where(answer, 1.0, 0.0))

    def learn(
        self, state: Any, params: FixedParams, cut: Any, decision: Decision, error: Any, weight: Any = 1.0
    ) -> Any:
        """Learn nothing."""
        return state

    def masses(self, state: Any, params: FixedParams) -> Any:
        """Return all probability on the arm, [H]."""
        return jax.nn.one_hot(state, self.arms, dtype=jnp.float64)


def make_game(learner: Learner[Any], arms: int, weights: Any) -> Any:
    """Return a learner as functions of one game; raise TypeError if its rule is of no known type.

    Args:
        learner: with a rule of any type.
        arms: H.
        weights: ``weights(arms, prior)`` makes the ``Rows`` or ``Dense`` of a rule with weights.
    """
    match rule := learner.rule:
        case Sided():
            return SidedGame(learner, arms, weights(arms, rule.prior))
        case Drawn():
            return DrawnGame(learner, arms, weights(arms, None))
        case Ranked():
            return RankedGame(learner, arms)
        case Fixed():
            return FixedGame(learner, arms)
        case Own():
            return rule.game(arms)
    raise TypeError(f"a rule cannot be a {type(rule).__name__}")


def reweigh(game: Any, state: Any, params: Any) -> Any:
    """Return the state before a block of 256 rounds, at its rates; that of a learner without ``reweigh`` stays."""
    return game.reweigh(state, params) if hasattr(game, "reweigh") else state


def step(game: Any, state: Any, params: Any, x: Block) -> tuple[Any, Any]:
    """Play a round with its feedback at once: decide, then learn. Return the state, and whether it was answered.

    A round that is not active answers nothing.
    """
    late = isinstance(game, Late)
    state, decision = game.decide(state, params, x.cuts, x.draws if late else x.draws.decision)
    answered = decision.answer & x.active
    if late:  # it counts questions, and padding must not count; other states are not read after padding
        decision = decision._replace(answer=answered)
        state = game.learn(state, params, x.cuts, decision, x.errors, jnp.where(x.active, 1.0, 0.0))
    else:
        state = game.learn(state, params, x.cuts, decision, x.errors)
    return state, answered


def play_round(
    game: Any,
    environment: Any,
    pool: Any,
    states: tuple[Any, Any],
    params: Any,
    objective: Any,
    draws: Draws,
    environment_draws: Any,
    active: Any,
) -> tuple[tuple[Any, Any], tuple[Any, Any, Any]]:
    """Play a round of one game in an adaptive environment: ask, decide, learn, see.

    Args:
        game: the learner.
        environment: the environment, an ``Adaptive``.
        pool: the ``AdaptivePool`` that it asks from.
        states: of the learner and of the environment.
        params: the learner's numbers.
        objective: an ``Objective``, alpha, the costs and the tunables.
        draws: [], the learner's, which the environment never receives.
        environment_draws: uniforms [``environment.draws``].
        active: [] bool, as of ``step``.

    Returns:
        The states after the round; and the answer, the cut and the error [].
    """
    mine, state = states
    masses = game.masses(mine, params) if environment.sees_masses else None
    question = environment.ask(state, pool, objective, environment_draws, masses)
    mine, answered = step(game, mine, params, Block(question.cut, question.error, draws, active))
    state = environment.see(state, question, answered)
    return (mine, state), (answered, question.cut, question.error)


def play(learner: Any, params: Any, cuts: Any, errors: Any, uniforms: Any) -> Any:
    """Play one game of T rounds, as of ``exaul.play``, which checks the arrays [T]; return the answers [T]."""

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
    return now, jax.lax.cond(t % ROUNDS == 0, lambda x: reweigh(learner, x, now), lambda x: x, state)


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
