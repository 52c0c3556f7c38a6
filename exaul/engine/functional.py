"""Learners as pure functions of one game, for your own JAX program; with the ``cuts`` of scores on a ``grid``."""

from __future__ import annotations  # so that help() prints ArrayLike, not all that it stands for

import math
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.engine import registry
from exaul.engine.checks import BadInput, check_count, check_holds, check_known, check_not_negative
from exaul.engine.logs.log import Records
from exaul.engine.simulation.prepare_learner import rates_of_game, required
from exaul.kernels import play as kernel
from exaul.kernels.dense import make_learner
from exaul.kernels.game import ARMS, BLOCK, GRIDS, LOG_GRID, Rates, RuleParams, compute_cuts, log_grid
from exaul.kernels.learners.learner import FEEDBACKS, Fixed, Learner, Own, Ranked, regret_at, start_of
from exaul.kernels.play import (
    FixedParams,
    GameLearner,
    LearnerParams,
    Params,
    RankedParams,
    loss_costs,
)
from exaul.kernels.rows import Rows

VMAP = "jax.vmap plays several"
LARGEST, BELOW_1 = np.finfo(float).max, np.nextafter(1, 0)


def make(
    learner: str | Learner[Any],
    arms: int | None = None,
    *,
    alpha: float,
    horizon: int | None = None,
    lam: float | None = None,
    eta: float | None = None,
    gamma: float | None = None,
    anytime: bool = False,
    grid: ArrayLike | None = None,
    log: tuple[ArrayLike, ArrayLike] | Records | None = None,
) -> tuple[GameLearner, LearnerParams]:
    """Make a learner, as pure functions of one game, and its ``params``.

    Args:
        learner: name, ``module:name``, or a ``Learner``; not ``best-fixed``, which needs hindsight.
        arms: H >= 2, the number of thresholds; default: the length of ``grid``, or 1,000.
        alpha: target FDR in (0, 1).
        horizon: T >= 1, the number of rounds, from which eta, gamma and lam follow unless given.
        lam: lambda >= 0, the weight of the FDR against abstaining (eq. 4); default: ``lambda = sqrt(T)``, or NaN
            without a horizon if only ``regret`` would read it.
        eta: learning rate > 0, or the step of ``aci-rank``, in (0, 1]; default: the learner's own at this horizon.
        gamma: implicit exploration >= 0; default: the learner's own at this horizon.
        anytime: use the rates for an unknown horizon. Then eta and gamma are [K], constant over blocks of 256
            rounds: ``play`` takes the next of each, your own loop calls ``learner.reweigh`` with them. K and lam
            follow from the horizon.
        grid: [H] thresholds, if the learner starts from a log.
        log: scores [N] and errors [N] of a log from which ``aci-rank`` starts, in [0, 1] each, the latest last;
            or the ``Records`` of ``exaul.load_log``.

    Returns:
        The learner, a static value with ``init``, ``decide`` and ``learn``, and its numbers: ``Params`` with
        weights, ``RankedParams`` of ``aci-rank``, ``FixedParams`` of a fixed threshold, or ``RuleParams`` of your
        own class.

    Raises:
        BadInput: a number is out of range, the learner is unknown, or JAX computes in float32.
    """
    check_precision()
    name = learner if isinstance(learner, str) else "learner"
    definition: Learner[Any] = registry.resolve("learner", learner)
    check_known("learner: feedback", (definition.feedback,), FEEDBACKS)
    check_holds("learner", name, definition.feedback != "hindsight", "a learner without hindsight")
    thresholds = ARMS if grid is None else np.size(grid)
    arms = thresholds if arms is None else arms
    check_count("arms", arms, 2)
    check_holds("arms", arms, grid is None or arms == thresholds, f"{thresholds}, as many as the grid has")
    check_count("horizon", horizon)
    check_holds("alpha", alpha, isinstance(alpha, Real) and 0 < alpha < 1, "a number in (0, 1)")
    check_not_negative("lam", lam)
    log_records = _read_log(name, definition.rule, grid, log)
    eta, gamma = rates_of_game(name, definition, arms, horizon, eta, gamma, anytime)
    if lam is None:
        reads_lam = not isinstance(definition.rule, Fixed | Ranked)
        lam = math.sqrt(required("lam", horizon)) if horizon or reads_lam else math.nan
    params = _make_params(definition.rule, arms, alpha, lam, eta, gamma, log_records)
    return make_learner(definition, arms, Rows), params


def _read_log(name: str, rule: Any, grid: Any, log: Any) -> tuple[Any, Any] | None:
    """Return the cuts [N] and errors [N] of a log, if any; BadInput if the learner cannot start from it."""
    if log is None:
        if name == registry.FROM_LOG:
            raise BadInput(f"log: not given, and {name} starts from one; give grid=grid, log=(scores, errors)")
        return None
    if grid is None:
        raise BadInput("log: given without grid; its scores need the thresholds")
    if getattr(rule, "fit", None) is None:
        raise BadInput(f"log: given, but {name} does not start from a log")
    log = (log.scores, log.errors) if isinstance(log, Records) else log
    log_cuts, log_errors = cuts(np.asarray(grid), log[0]), np.asarray(log[1], np.float64)
    check_holds("log", [len(x) for x in log], len(log[0]) == len(log[1]), "of two equal lengths")
    check_range("errors", log_errors, 0, 1)
    return log_cuts, log_errors


def _make_params(rule: Any, arms: int, alpha: float, lam: float, eta: Any, gamma: Any, log_records: Any) -> Any:
    """Return the ``params`` of a rule; BadInput if it needs a rate that is None."""
    if isinstance(rule, Fixed):
        return FixedParams(alpha, lam, np.int32(rule.arm(arms, np.int32(0))))
    eta = required("eta", eta)
    if isinstance(rule, Ranked):
        _, state, counts = start_of(rule, arms, [alpha], log_records)
        return RankedParams(alpha, lam, eta, type(state)(*(float(x[0]) for x in state)), counts)
    params = Params(alpha, lam, eta, required("gamma", gamma))
    if isinstance(rule, Own):
        return RuleParams(params.eta, params.gamma, alpha, *loss_costs(params), 1.0)
    return params


def play(
    learner: GameLearner, params: LearnerParams, cuts: ArrayLike, errors: ArrayLike, uniforms: ArrayLike
) -> jax.Array:
    """Play one game of T rounds, in which each answer gets its feedback at once.

    ``vmap`` it over any argument but the learner. Within ``jit`` and ``vmap`` only shapes and types are checked.

    Args:
        learner: from ``make``, or an object with ``init``, ``decide`` and ``learn`` as in ``GameLearner``.
        params: the learner's numbers; eta and gamma may be [K], for blocks of 256 rounds.
        cuts: [T] integers in 1..H-1, from ``exaul.cuts``.
        errors: [T] in [0, 1], 1 if the answer is wrong.
        uniforms: [T] uniform in [0, 1).

    Returns:
        [T] bool, the rounds that were answered.

    Raises:
        BadInput: the arrays differ in shape, cuts are not integers, a value is out of its range, the params are not
            of this learner or have another number of rates than of blocks, or JAX computes in float32.
    """
    game = _check_game(learner, cuts, errors, "uniforms", uniforms)
    check_params(learner, params, len(game[0]))
    check_range("uniforms", game[2], 0, BELOW_1)
    return kernel.play(learner, params, game[0].astype(jnp.int32), game[1].astype(jnp.float64), game[2])


def regret(
    learner: GameLearner, params: LearnerParams, cuts: ArrayLike, errors: ArrayLike, answers: ArrayLike
) -> jax.Array:
    """Return the regret after each round, against the threshold of least loss so far (eq. 3).

    Args:
        learner: the learner of the game; ``arms`` is its number of thresholds.
        params: its numbers, of which alpha and lam define the loss (eq. 4).
        cuts, errors: [T] each, as in ``play``.
        answers: [T] bool, the rounds that were answered, from ``play``.

    Returns:
        [T] float64, in units of the loss, which is in [0, 1] a round; it is negative if the learner lost less.

    Raises:
        BadInput: as in ``play``; or lam is not finite, since ``make`` got neither a horizon nor lam.
    """
    game = _check_game(learner, cuts, errors, "answers", answers)
    kind = game[2].dtype
    check_holds("answers", str(kind), kind == jnp.bool_, "bool, as exaul.play returns them")
    check_range("lam (given to exaul.make, or by a horizon there)", getattr(params, "lam", ()), 0, LARGEST)
    answer_cost, abstain_cost = loss_costs(params)

    def one_round(losses: Any, record: Any) -> tuple[Any, Any]:
        (arm_losses, loss), (cut, error, answer) = losses, record
        arm_losses += jnp.where(jnp.arange(learner.arms, dtype=jnp.int32) < cut, answer_cost * error, abstain_cost)
        loss += jnp.where(answer, answer_cost * error, abstain_cost)
        return (arm_losses, loss), loss - jnp.min(arm_losses)

    rounds = tuple(game)
    first = kernel.first_carry((jnp.zeros(learner.arms), jnp.zeros(())), params, rounds)
    return jax.lax.scan(one_round, first, rounds)[1]


def _check_game(learner: Any, cuts: Any, errors: Any, name: str, values: Any) -> list[Any]:
    """Return the arrays [T] of one game, or raise BadInput; the caller checks the range of ``values``."""
    check_precision()
    arrays = [x if isinstance(x, jax.Array) else np.asarray(x) for x in (cuts, errors, values)]
    shapes = [x.shape for x in arrays]
    is_game = len({*shapes}) == len(shapes[0]) == 1
    check_holds(f"cuts, errors, {name}", shapes, is_game, f"[T] each, of one game; {VMAP}")
    kind, allowed = arrays[0].dtype, "integers, as exaul.cuts(grid, scores) returns them"
    check_holds("cuts", str(kind), jnp.issubdtype(kind, jnp.integer), allowed)
    check_range("cuts", arrays[0], 1, getattr(learner, "arms", math.inf) - 1)
    check_range("errors", arrays[1], 0, 1)
    return arrays


def check_params(learner: Any, params: Any, horizon: int, is_whole: bool = True) -> None:
    """Raise BadInput unless these are the numbers of a learner for one game of T rounds or more.

    Rates may be [K], one for each of its blocks; more only if not ``is_whole``.
    """
    check_holds("learner", learner, hasattr(learner, "init"), "from exaul.make")
    rule = getattr(getattr(learner, "definition", None), "rule", None)
    kinds = {Fixed: FixedParams, Own: RuleParams, Ranked: RankedParams, type(None): type(params)}
    kind = kinds.get(type(rule), Params)
    check_holds("params", type(params).__name__, isinstance(params, kind), f"{kind.__name__}, from exaul.make")
    ranges = dict.fromkeys(("lam", "eta", "gamma") if kind is Params else (), LARGEST)
    for name, upper in ({"alpha": 1, "step": 1} | ranges).items():  # your class may read no rates, which are NaN
        check_range(name, getattr(params, name, ()), 0, upper)
    blocks, shapes = -(-horizon // BLOCK), [jnp.shape(getattr(params, name, 0.0)) for name in ("eta", "gamma")]
    are_blocks = len(shapes[0]) == 1 and (shapes[0][0] == blocks or (shapes[0][0] > blocks and not is_whole))
    are_valid = shapes[0] == shapes[1] and (shapes[0] == () or are_blocks)
    allowed = f"[] each, or [{blocks}], of blocks of {BLOCK} rounds; {VMAP if is_whole else 'call it for each'}"
    check_holds("eta, gamma", shapes, are_valid, allowed)


def check_precision() -> None:
    """Raise BadInput if JAX computes in float32."""
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise BadInput('JAX computes in float32; add after "import jax": jax.config.update("jax_enable_x64", True)')


def check_range(name: str, values: Any, lower: float, upper: float) -> None:
    """Raise BadInput unless all values are in a range; values that JAX traces are not checked."""
    if not isinstance(values, jax.core.Tracer):
        array = np.asarray(values)
        outside = array[~((array >= lower) & (array <= upper))]
        allowed = {LARGEST: "finite and at least 0", BELOW_1: "in [0, 1)"}.get(upper, f"from {lower} to {upper}")
        check_holds(name, outside[:1].tolist(), not outside.size, allowed)


def regret_bound(
    learner: GameLearner, params: LearnerParams, rounds: ArrayLike, delta: float = 0.05
) -> NDArray[np.float64]:
    """Return the bound of the regret (eq. 3) after some rounds, which holds with probability ``1 - delta``.

    It is ``regret_bounds.best`` of the learner (R2, R3 or R6 of ``docs/proofs.md``). NumPy computes it, so call it
    outside ``jit`` and ``vmap``.

    Args:
        learner: from ``make``.
        params: its numbers for one game.
        rounds: integers t >= 1, of any shape.
        delta: in (0, 1), the probability that the bound fails; or 1, for a bound of the mean.

    Returns:
        float64 of the shape of ``rounds``; NaN if nothing is proved, as for ``aci-rank``, your own class, and rates
        that grow from a block to the next.

    Raises:
        BadInput: a number is out of its range, JAX traces an argument, or rates [K] are fewer than the blocks.
    """
    check_holds("delta", delta, 0 < delta <= 1, "in (0, 1]")
    counts = _read_rounds(learner, params, "rounds", rounds)
    bounds = getattr(getattr(learner, "definition", None), "regret_bounds", None)
    if bounds is None:
        return np.full(counts.shape, math.nan)
    arguments = learner.arms, delta, params.alpha, params.lam
    rates = Rates(params.eta, params.gamma)
    return np.vectorize(lambda t: regret_at(bounds.best, rates, int(t), *arguments), otypes=[float])(counts)


def risk_bound(
    learner: GameLearner, params: LearnerParams, t: ArrayLike, answered: ArrayLike
) -> NDArray[np.float64]:
    """Return the bound of the FDR risk ``R_t`` (eq. 1), wrong answers - alpha x answers, on every sequence.

    It is ``risk_bound`` of the learner's definition, for feedback at once; of ``aci-rank`` it is W1 of
    ``docs/proofs.md``, ``s_1 / step + 1 - alpha + (t - answered) / 200``. After a log, ``s_1`` is the share with
    which ``make`` started. NumPy computes it, so call it outside ``jit`` and ``vmap``.

    Args:
        learner: from ``make``.
        params: its numbers for one game.
        t: integers >= 1, rounds so far, of any shape.
        answered: integers in 0..t, how many of these rounds were answered; it broadcasts with ``t``.

    Returns:
        float64 of the shape of both, in wrong answers; NaN if nothing is proved, as for ``exaul``, your own class,
        and a ``Learner`` without ``risk_bound``.

    Raises:
        BadInput: a number is out of its range, shapes do not broadcast, JAX traces an argument, or rates [K] are
            fewer than the blocks.
    """
    rounds = _read_rounds(learner, params, "t", t, answered)
    try:
        rounds, counts = np.broadcast_arrays(rounds, np.asarray(answered))
    except ValueError as error:
        raise BadInput(f"t, answered: {np.shape(t)} and {np.shape(answered)} found; they must broadcast") from error
    are_counts = counts.dtype.kind in "iu" and bool(((counts >= 0) & (counts <= rounds)).all())
    check_holds("answered", answered, are_counts, "integers from 0 to t")
    bound_of = getattr(getattr(learner, "definition", None), "risk_bound", None)
    if bound_of is None:
        return np.full(counts.shape, math.nan)
    blocks, eta = -(-int(rounds.max(initial=1)) // BLOCK), getattr(params, "step", getattr(params, "eta", math.nan))
    bound = bound_of(np.resize(eta, blocks), rounds, counts, params.alpha, getattr(params, "state", ()))
    return np.full(counts.shape, bound, np.float64)


def _read_rounds(learner: Any, params: Any, name: str, rounds: Any, answered: Any = ()) -> NDArray[Any]:
    """Return the rounds t of a bound; BadInput unless they are integers >= 1, and params are valid and known."""
    are_known = not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((params, rounds, answered)))
    check_holds(f"params, {name}", "arrays that JAX traces", are_known, "known: call this outside jit and vmap")
    counts = np.asarray(rounds)
    check_holds(name, rounds, counts.dtype.kind in "iu" and bool((counts >= 1).all()), "integers of at least 1")
    check_params(learner, params, int(counts.max(initial=1)), is_whole=False)
    return counts


def grid(name: str, arms: int, scores: ArrayLike | None = None) -> NDArray[np.float64] | jax.Array:
    """Return the thresholds of a grid, in increasing order, the first 0 and the last 1.

    Args:
        name: ``uniform`` (the paper's, ``tau_k = k / (H - 1)`` for k from 0), ``logit`` (evenly spaced in the
            logit, for likelihoods near 1), ``quantile`` (of the scores), or ``log`` (the distinct scores of a log).
        arms: H >= 2, the number of thresholds; of ``log`` the largest.
        scores: [N] in [0, 1], which ``quantile`` and ``log`` need and the others do not read.

    Returns:
        [H] float64 in [0, 1]; a JAX array if JAX traces the scores.

    Raises:
        BadInput: the name is unknown, an argument is out of its range, or scores are missing.
    """
    check_known("grid", (name,), (*GRIDS, LOG_GRID))
    check_count("arms", arms, 2)
    if name in ("quantile", LOG_GRID) and scores is None:
        raise BadInput(f"scores: not given; the grid {name} is made of them")
    values: Any = () if scores is None else scores
    check_range("scores", values, 0, 1)
    if isinstance(values, jax.core.Tracer) and name == LOG_GRID:
        raise BadInput("scores: traced by JAX, but how many are distinct is the length of this grid")
    if isinstance(values, jax.core.Tracer) and name == "quantile":
        ranks = GRIDS["quantile"](arms, np.arange(len(values)))[1:-1].astype(int)
        return jnp.concatenate([jnp.zeros(1), jnp.sort(values)[ranks], jnp.ones(1)])
    return (log_grid if name == LOG_GRID else GRIDS[name])(arms, values)


def cuts(grid: ArrayLike, scores: ArrayLike) -> NDArray[np.int32] | jax.Array:
    """Return the cut of each score, the number of thresholds that it reaches: ``c = #{k : tau_k <= f}``.

    A score of 1 has the cut H - 1, because the last threshold always abstains.

    Args:
        grid: [H] thresholds tau in [0, 1], none below the one before it, H >= 2.
        scores: f in [0, 1], of any shape.

    Returns:
        int32 in 1..H-1, of the shape of ``scores``: a JAX array if an argument is one, else a NumPy array. Under
        ``jit`` and ``vmap`` a score of NaN has the cut 1.

    Raises:
        BadInput: the thresholds are not in order, or a threshold or a score is not in [0, 1].
    """
    if not isinstance(grid, jax.core.Tracer):
        is_grid = np.ndim(grid) == 1 and np.size(grid) >= 2 and bool((np.diff(np.asarray(grid)) >= 0).all())
        check_holds("grid", np.shape(grid), is_grid, "[H], sorted thresholds, H >= 2: exaul.cuts(grid, scores)")
    check_range("grid", grid, 0, 1)
    check_range("scores", scores, 0, 1)
    if isinstance(grid, jax.Array) or isinstance(scores, jax.Array):
        thresholds, values = jnp.asarray(grid), jnp.asarray(scores)
        reached = jnp.searchsorted(thresholds, values, side="right")
        return jnp.clip(jnp.where(jnp.isnan(values), 1, reached), 1, len(thresholds) - 1).astype(jnp.int32)
    return compute_cuts(np.asarray(grid, np.float64), scores)
