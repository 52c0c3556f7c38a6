"""Every learner on ``dense`` against the NumPy reference, and rates against the paper's.

``test_backends.py`` holds the other backends to ``dense``.
"""

import re
import textwrap
import types

import numpy as np
import pytest

from exaul.engine.registry import backend_of
from exaul.kernels.game import BLOCK, GRIDS, compute_cuts
from exaul.kernels.learners.learner import has_weights, rates_of_horizon
from tests import games, reference
from tests.engine.test_imports import ROOT, worked_examples
from tests.games import LEARNERS

FIXED = {
    "no-abstention": lambda arms: 0,
    "always-abstain": lambda arms: arms - 1,
    "best-fixed": lambda arms: arms // 2,
}


@pytest.mark.parametrize(
    ("arms", "grid", "kind", "feedback", "anytime", "rounds"),
    [
        (2, "uniform", "levels", "binary", False, 1024),
        (100, "uniform", "ends", "ratings", False, 1280),
        (100, "uniform", "shift", "binary", False, 1280),
        (100, "logit", "continuous", "binary", True, 1024),
        (100, "quantile", "continuous", "binary", True, 1024),
    ],
)
@pytest.mark.parametrize("name", [name for name, backend in games.LOOPS if backend == "dense"])
def test_decisions_equal_the_reference(name, arms, grid, kind, feedback, anytime, rounds):
    """On every grid, with the rates for a known horizon and for an unknown one."""
    rng = np.random.default_rng([arms, len(kind), len(feedback)])
    thresholds = GRIDS[grid](arms, games.scores_of("continuous", np.random.default_rng(0), 500))
    scores = games.scores_of(kind, rng, rounds)
    scores = np.stack([rng.permutation(scores) if kind != "shift" else scores for _ in range(3)], axis=1)
    errors = (rng.random(scores.shape) > scores**0.5).astype(float)
    if feedback == "ratings":
        errors = np.clip(errors * 0.7 + rng.random(scores.shape) * 0.4, 0, 1)
    uniforms = rng.random(scores.shape)
    alpha, lam = np.array([0.05, 0.2, 0.5]), np.array([rounds**0.5, 1.0, 0.0])
    rates, rule = rates_of_horizon(LEARNERS[name], rounds, arms, anytime, None, None), LEARNERS[name].rule
    arm = FIXED[name](arms) if name in FIXED else 0
    cuts = compute_cuts(thresholds, scores.ravel()).reshape(scores.shape)
    backend, each_round = backend_of(LEARNERS[name], "dense", "float64"), [np.repeat(x, BLOCK) for x in rates]
    state, answers = games.simulate(rule, backend, arms, arm, cuts, errors, uniforms, rates, alpha, lam)
    for b in range(3):
        records = scores[:, b], errors[:, b], uniforms[:, b]
        game = "fixed" if name in FIXED else name, thresholds, *records, alpha[b], lam[b], *each_round, arm
        decisions, losses = reference.simulate(*game)
        np.testing.assert_array_equal(answers[:, b], decisions)
        if has_weights(LEARNERS[name]):  # a charge divides by P, so that the losses keep each P of the game
            charges = games.losses_of(rule, backend, arms, state)[b]
            np.testing.assert_allclose(charges, losses - losses[0], rtol=1e-9, atol=1e-9)


def test_the_learner_of_contributing_decides_as_its_lines_for_the_reference(monkeypatch):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (lines,) = re.findall(r"^ +elif self\.learner.*?\n(?=\n)", text, re.DOTALL | re.MULTILINE)
    last = '        elif self.learner != "fixed":\n'
    source = (ROOT / "tests/reference.py").read_text()
    oracle, hedged = types.ModuleType("oracle"), {"__name__": "hedged"}
    exec(source.replace(last, textwrap.indent(textwrap.dedent(lines), " " * 8) + last), oracle.__dict__)
    exec(worked_examples()[0], hedged)
    monkeypatch.setattr("tests.kernels.test_learners.reference", oracle)
    monkeypatch.setitem(LEARNERS, "hedged", hedged["hedged"])
    test_decisions_equal_the_reference("hedged", 100, "uniform", "continuous", "ratings", False, 300)


ETA = {  # of the paper: of H arms and a known horizon T, and in round t of an unknown one
    "exaul": (lambda T, H: np.sqrt(np.log(H) / T), lambda t, H: np.sqrt(np.log(H) / (2 * t))),
    "exp3-ix": (lambda T, H: np.sqrt(2 * np.log(H) / (T * H)), lambda t, H: np.sqrt(np.log(H) / (t * H))),
    "ew": (lambda T, H: np.sqrt(8 * np.log(H) / T), lambda t, H: 2 * np.sqrt(np.log(H) / t)),
}


@pytest.mark.parametrize("name", ETA)
def test_rates_are_the_papers_unless_given(name):
    """Those for an unknown horizon are held over blocks of 256; with full feedback there is no gamma."""
    (known, unknown), times = ETA[name], np.nan if name == "ew" else 1.0
    for horizon in (1, 256, 30_000):
        eta, gamma = rates_of_horizon(LEARNERS[name], horizon, 1000, False, None, None)
        np.testing.assert_allclose(eta, known(horizon, 1000))
        np.testing.assert_allclose(gamma, times * eta / 2)
    eta, _ = rates_of_horizon(LEARNERS[name], 1000, 50, True, None, None)
    np.testing.assert_allclose(eta, unknown(256 * np.arange(1, 5), 50))
    for anytime in (False, True):
        eta, gamma = rates_of_horizon(LEARNERS[name], 600, 50, anytime, 0.3, 0.2)
        np.testing.assert_array_equal((eta, gamma), [[0.3] * 3, [times * 0.2] * 3])


def test_a_learner_without_weights_has_no_rates():
    assert np.isnan(rates_of_horizon(LEARNERS["no-abstention"], 600, 50, False, 0.3, 0.2)).all()
