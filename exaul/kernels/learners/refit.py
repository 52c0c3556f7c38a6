"""``refit``: a practitioner's moving window, a rival that anyone can name.

It answers everything in the first 256 rounds. Then, before every block of 256 rounds, it takes the lowest threshold
at or above which a share of at most alpha of its last 2,000 labels was wrong, without any margin, as a service does
whose threshold is fitted again every night (selection by the empirical risk, as in Geifman and El-Yaniv, "Selective
classification for deep neural networks", 2017, but for their confidence bound). Only answers give labels, so that
of the scores below the threshold there are old labels or none; nothing is proved of it. Where no threshold will do
it plays the last arm, which answers nothing: then no label is added, and it does not come back.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.backend import Backend, Turns, by_turns
from exaul.kernels.bounds import unbounded
from exaul.kernels.game import Block, Outcome, Parameters
from exaul.kernels.learners.learner import Learner, Own

LABELS = 2000  # how many are kept
ROUNDING = 1e-9  # in wrong answers: a sum of ratings that is so little above alpha n counts as equal


def lowest(cuts: Any, errors: Any, alpha: Any, arms: int) -> Any:
    """The lowest threshold whose share of wrong among some labels is at most alpha.

    ``min {k : 0 < n_k, W_k <= alpha n_k}``, where n_k counts the labels that threshold k would have answered, and
    W_k is the sum of their errors (the empirical selective risk of Geifman and El-Yaniv 2017).

    Args:
        cuts: [N, B] int32 in 0..H-1; 0 where there is no label.
        errors: [N, B] in [0, 1].
        alpha: [B] in (0, 1).
        arms: H.

    Returns:
        [B] int32 in 0..H-1; H - 1, which never answers, if there is none.
    """
    lanes = jnp.arange(cuts.shape[1])[None]
    none = jnp.zeros((arms, cuts.shape[1]), jnp.float64)
    count, wrong = none.at[cuts, lanes].add(1.0), none.at[cuts, lanes].add(errors)
    above, wrong_above = (jnp.sum(x, axis=0, keepdims=True) - jnp.cumsum(x, axis=0) for x in (count, wrong))
    good = (above > 0) & (wrong_above <= alpha[None] * above + ROUNDING)
    return jnp.where(jnp.any(good, axis=0), jnp.argmax(good, axis=0), arms - 1).astype(jnp.int32)


def backend(precision: str) -> Backend:
    """Make the one backend of this learner, round by round.

    The state is a ring of the last 2,000 labels, cuts [2000, B] int32 and errors [2000, B] float64, the number of
    labels so far [B], and the numbers of the arms [H].

    Returns:
        The backend.
    """

    def init(arms: int, best: NDArray[np.int32], streams: int) -> tuple[Any, ...]:
        copies = len(best)
        cuts, errors = jnp.zeros((LABELS, copies), jnp.int32), jnp.zeros((LABELS, copies), jnp.float64)
        return cuts, errors, jnp.zeros(copies, jnp.int64), jnp.arange(arms, dtype=jnp.int32)

    def begin(state: tuple[Any, ...], parameters: Parameters) -> tuple[Any, ...]:
        cuts, errors, labels, arms = state
        fitted = lowest(cuts, errors, parameters.alpha, arms.size)
        return jnp.where(labels == 0, 0, fitted), arms

    def play(
        carry: tuple[Any, ...], x: Block, parameters: Parameters
    ) -> tuple[tuple[Any, ...], tuple[Outcome, Any]]:
        answered = (carry[0] < x.cuts) & x.active
        return carry, (Outcome(answered, answered.astype(jnp.float64)), (x.cuts, x.errors, answered))

    def end(state: tuple[Any, ...], carry: tuple[Any, ...], changes: tuple[Any, ...]) -> tuple[Any, ...]:
        cuts, errors, labels, arms = state
        new_cuts, new_errors, answered = changes
        number = labels[None] + jnp.cumsum(answered, axis=0)
        place = jnp.where(answered, (number - 1) % LABELS, LABELS)  # beyond the ring: dropped
        lanes = jnp.arange(labels.size)[None]
        cuts = cuts.at[place, lanes].set(new_cuts, mode="drop")
        return cuts, errors.at[place, lanes].set(new_errors, mode="drop"), number[-1], arms

    def masses(carry: tuple[Any, ...], parameters: Parameters) -> jax.Array:
        return (carry[1][:, None] == carry[0][None]).astype(jnp.float64)

    return by_turns(init, Turns(begin, play, end, masses))


refit = Learner("bandit", Own(backend), None, None, unbounded)
