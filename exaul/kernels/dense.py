"""What each type of learner does in a round, in JAX; and ``dense``, the readable backend, O(H) a round.

    SidedLearner     a round of Algorithms "ExAUL" and "EW-CA": charge both sides of the cut
    DrawnLearner     a round of "Exp3-IX-CA": charge the drawn arm
    RankedLearner    answer by the rank of a score, as ``aci-rank`` does
    FixedLearner     answer by a fixed threshold
    Dense            the weights of the first two, all computed from the cumulative losses in every round

The learner's rule computes the charges (``learners/exaul.py`` for "ExAUL"). ``Rows`` in ``rows.py`` has the methods
of ``Dense`` in fewer steps.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from exaul.kernels.game import RuleParams
from exaul.kernels.learners.learner import Drawn, Fixed, Learner, Own, Ranked, Sided, weight_of_last
from exaul.kernels.play import Backend, Decision, FixedParams, Params, RankedParams, loss_costs


def _rule_params(params: Any, weight: Any) -> RuleParams:
    """Return the numbers that a rule reads; the engine's ``params`` are these already."""
    if isinstance(params, RuleParams):
        return params._replace(weight=weight)
    eta, gamma = (params.step, 0.0) if isinstance(params, RankedParams) else (params.eta, params.gamma)
    return RuleParams(eta, gamma, params.alpha, *loss_costs(params), weight)


def visible_error(learner: Learner[Any], answered: Any, error: Any) -> Any:
    """Return the error that a learner may see: 0 if it did not answer, unless it has full feedback."""
    return error if learner.feedback == "full" else jnp.where(answered, error, 0.0)


@dataclass(frozen=True)
class _RuleLearner:
    """A ``GameLearner`` of a rule; each type of rule has a subclass."""

    definition: Learner[Any]  # its rule, rates and bounds
    arms: int  # H

    def _rule_arguments(self, params: Any, decision: Decision, error: Any, weight: Any) -> tuple[Any, ...]:
        """Return the decision, the error that the learner may see, and the numbers that its rule reads."""
        error = visible_error(self.definition, decision.answer, error)
        return decision.answer, error, _rule_params(params, weight)


@dataclass(frozen=True)
class _WeightedLearner(_RuleLearner):
    """A learner with weights, which ``Rows`` and ``Dense`` keep."""

    weights: Any

    def init(self, params: Params) -> Any:
        """Return the state before round 1: no losses (line 2 of every algorithm of the paper)."""
        return self.weights.init()

    def reweigh(self, state: Any, params: Params) -> Any:
        """Return the state at another eta, O(H): for rates that change now and then."""
        return self.weights.reweigh(state, params.eta)

    def distribution(self, state: Any, params: Params) -> Any:
        """Return the probabilities of the arms [H]."""
        return self.weights.distribution(state, params.eta)

    def _charges(self, masses: tuple[Any, ...], params: Params, decision: Decision, error: Any, weight: Any) -> Any:
        """Return the rule's charges for a round, from the probabilities that it reads."""
        arguments = self._rule_arguments(params, decision, error, 1.0)
        charges = self.definition.rule.charge(jnp.where, *masses, *arguments)

        def weighted(charge: Any) -> Any:
            # with weight 0 the charge of an abstention is 0, even if the rule divides by 0
            return jnp.where(decision.answer, charge, jnp.where(weight > 0, charge * weight, 0.0))

        return jax.tree.map(weighted, charges)


@jax.tree_util.register_static
class SidedLearner(_WeightedLearner):
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

        ``error`` [] is not read after an abstention, except with full feedback. ``weight`` [] is the weight of an
        abstention, below 1 if only a share of the answers is learned; 0 changes nothing.
        """
        below, above = self._charges(decision.residuals, params, decision, error, weight)
        return self.weights.charge_sides(state, params.eta, cut, below, above)


@jax.tree_util.register_static
class DrawnLearner(_WeightedLearner):
    """A learner that draws an arm, and charges that arm only (``exp3-ix``)."""

    def decide(self, state: Any, params: Params, cut: Any, u: Any, waiting: Any = None) -> tuple[Any, Decision]:
        """Draw a decision, as in ``SidedLearner``."""
        chex.assert_rank([cut, u], 0)
        arm, p, P = self.weights.draw(state, params.eta, cut, u)
        return state, Decision(arm < cut, P, (arm, p))

    def learn(self, state: Any, params: Params, cut: Any, decision: Decision, error: Any, weight: Any = 1.0) -> Any:
        """Return the state after a round, as in ``SidedLearner``."""
        arm, p = decision.residuals
        charge = self._charges((p,), params, decision, error, weight)
        return self.weights.charge_arm(state, params.eta, arm, charge)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Dense:
    """The weights of H arms as their cumulative losses.

    In all methods, ``losses`` [H] float64 is the state, ``eta`` [] the learning rate, ``cut`` [] int32 the cut of
    the record, in 1..H-1, and ``u`` [] uniform in [0, 1). ``below`` and ``above`` are the charges of an arm below
    the cut and above it.
    """

    arms: int
    prior: float | None  # the first mass of the last arm; None if all are equal
    precision: str = "float64"  # dtype of the weights

    def init(self) -> jax.Array:
        """Return no losses."""
        return jnp.zeros(self.arms, jnp.float64)

    def reweigh(self, losses: jax.Array, eta: Any) -> jax.Array:
        """Return the losses, which do not depend on eta."""
        return losses

    def distribution(self, losses: jax.Array, eta: Any) -> jax.Array:
        """Return the probabilities of the arms [H]."""
        w = self._weights(losses, eta).astype(jnp.float64)
        return w / jnp.sum(w)

    def _weights(self, losses: jax.Array, eta: Any) -> jax.Array:
        return weights_of(losses, eta, self.prior, self.precision)

    def _answers(self, cut: Any) -> jax.Array:
        """Return which arms [H] answer a record with this cut, ``k < c``."""
        return jnp.arange(self.arms, dtype=jnp.int32) < cut

    def sums(self, losses: jax.Array, eta: Any, cut: Any) -> tuple[jax.Array, jax.Array]:
        """Return the sums of the weights below the cut and above it."""
        # Q needs a separate sum: 1 - P would lose the digits of a small Q, by which rules divide.
        w, below = self._weights(losses, eta), self._answers(cut)
        low, high = jnp.sum(jnp.where(below, w, 0.0)), jnp.sum(jnp.where(below, 0.0, w))
        return low.astype(jnp.float64), high.astype(jnp.float64)

    def charge_sides(self, losses: jax.Array, eta: Any, cut: Any, below: Any, above: Any) -> jax.Array:
        """Charge every arm of a side the charge of its side (eq. 8 for ``exaul``)."""
        return losses + jnp.where(self._answers(cut), below, above)

    def draw(self, losses: jax.Array, eta: Any, cut: Any, u: Any) -> tuple[Any, Any, Any]:
        """Draw an arm from u; return it, its probability, and P."""
        w = self._weights(losses, eta)
        cumulative = jnp.cumsum(w).astype(jnp.float64)
        total = cumulative[-1]
        arm = jnp.sum(cumulative <= u * total, dtype=jnp.int32)  # the first arm whose cdf exceeds u
        p = w[arm].astype(jnp.float64) / total
        return arm, p, cumulative[cut - 1] / total

    def charge_arm(self, losses: jax.Array, eta: Any, arm: Any, charge: Any) -> jax.Array:
        """Charge one arm."""
        return losses.at[arm].add(charge)


def weights_of(losses: jax.Array, eta: Any, prior: float | None, precision: str) -> jax.Array:
    """Compute ``w_k = exp(-eta (L_k - min L))`` (line "Update" of every algorithm of the paper).

    L are the cumulative charges [H], float64; the prior is as in ``Sided``. The weights [H] have the dtype
    ``precision``, and are in [0, 1] without a prior.
    """
    # Subtracting the minimum makes the largest weight 1, so nothing overflows.
    weights = jnp.exp((eta * (jnp.min(losses) - losses)).astype(precision))
    if prior is None:
        return weights
    is_last = jnp.arange(weights.size) == weights.size - 1
    return jnp.where(is_last, weights * weight_of_last(prior, weights.size), weights)


class RankedState(NamedTuple):
    """The state of a rule on ranks."""

    rule_state: Any  # a NamedTuple of numbers
    counts: Any  # [H]


@jax.tree_util.register_static
class RankedLearner(_RuleLearner):
    """A learner that goes by the rank of a score among recent ones (``aci-rank``), O(H) a round."""

    def init(self, params: RankedParams) -> RankedState:
        """Return the state before round 1."""
        rule_state = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params.state)
        return RankedState(rule_state, jnp.asarray(params.counts, jnp.float64))

    def decide(
        self, state: RankedState, params: RankedParams, cut: Any, u: Any, waiting: Any = None
    ) -> tuple[RankedState, Decision]:
        """Decide as in ``SidedLearner``, and count the record.

        If given, ``waiting`` [] is a number of open answers, which count as wrong (``docs/proofs.md``, D2).
        """
        chex.assert_rank([cut, u], 0)
        rule, arms = self.definition.rule, jnp.arange(self.arms, dtype=jnp.int32)
        total = jnp.sum(state.counts)
        high = jnp.sum(jnp.where(arms <= cut, state.counts, 0.0)) / total
        low = jnp.sum(jnp.where(arms < cut, state.counts, 0.0)) / total
        rule_state = state.rule_state
        if waiting is not None:
            assert rule.reserve is not None
            rule_state = rule.reserve(jnp.where, rule_state, waiting, self.arms, _rule_params(params, 1.0))
        P = rule.decide(jnp.where, rule_state, high, low)
        counts = state.counts * rule.decay + jnp.where(arms == cut, 1.0, 0.0)
        return RankedState(state.rule_state, counts), Decision(u < P, P)

    def learn(
        self, state: RankedState, params: RankedParams, cut: Any, decision: Decision, error: Any, weight: Any = 1.0
    ) -> RankedState:
        """Return the state after a round, as in ``SidedLearner``."""
        arguments = self._rule_arguments(params, decision, error, weight)
        new_state = self.definition.rule.learn(jnp.where, state.rule_state, *arguments)
        learns = decision.answer | (weight > 0)
        return RankedState(jax.tree.map(partial(jnp.where, learns), new_state, state.rule_state), state.counts)

    def distribution(self, state: RankedState, params: RankedParams) -> Any:
        """Return the probabilities of the arms [H], whose mixture answers as the learner does."""
        below = jnp.cumsum(state.counts)
        ranks = below / below[-1]
        P = self.definition.rule.decide(jnp.where, state.rule_state, ranks[1:], ranks[:-1])
        return jnp.diff(P, prepend=0.0, append=1.0)


@jax.tree_util.register_static
@dataclass(frozen=True)
class FixedLearner(_RuleLearner):
    """A fixed threshold; its state is the arm. Those on H arms are equal, so that they share a compiled program."""

    definition: Learner[Any] = field(compare=False)

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

    def distribution(self, state: Any, params: FixedParams) -> Any:
        """Return the probabilities of the arms [H]: 1 for the fixed one."""
        return jax.nn.one_hot(state, self.arms, dtype=jnp.float64)


def make_learner(learner: Learner[Any], arms: int, weights: Any) -> Any:
    """Return a learner on H arms as functions of one game; raise TypeError if its rule is of another type.

    ``weights(arms, prior)`` makes the ``Rows`` or ``Dense`` of a rule with weights.
    """
    match rule := learner.rule:
        case Sided():
            return SidedLearner(learner, arms, weights(arms, rule.prior))
        case Drawn():
            return DrawnLearner(learner, arms, weights(arms, None))
        case Ranked():
            return RankedLearner(learner, arms)
        case Fixed():
            return FixedLearner(learner, arms)
        case Own():
            return rule.make(arms)
    raise TypeError(f"a rule cannot be a {type(rule).__name__}")


@jax.tree_util.register_static
@dataclass(frozen=True)
class _UnseenErrors:
    """A user's learner that gets 0 in place of the error of a round without an answer."""

    inner: Any

    def learn(self, state: Any, params: Any, cut: Any, decision: Decision, error: Any) -> Any:
        return self.inner.learn(state, params, cut, decision, jnp.where(decision.answer, error, 0.0))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def make_backend(learner: Learner[Any], precision: str) -> Backend:
    """Return the backend of a learner; there is one for every type of rule."""
    if isinstance(learner.rule, Own) and learner.feedback != "full":
        return Backend(lambda arms: _UnseenErrors(learner.rule.make(arms)))
    return Backend(partial(make_learner, learner, weights=partial(Dense, precision=precision)))
