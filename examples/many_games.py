"""Play many games at once: ``vmap`` over learning rates and seeds, and plot the regret. One call, one program."""

from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

import exaul
from examples.one_game import ALPHA, ARMS, HORIZON, make_records

SEEDS, SCALES = 20, np.array([0.5, 1.0, 2.0, 4.0])
STYLES = ("#08306b", "-"), ("#d94801", "--"), ("#41ab5d", "-."), ("#6a51a3", (0, (3, 1, 1, 1, 1, 1)))


def compute_regrets() -> tuple[np.ndarray, list[float]]:
    """Return the regret after each round, [rates, seeds, T], and the bound of its mean at T for each rate."""
    rng = np.random.default_rng(0)
    scores, errors = make_records(rng)
    learner, params = exaul.make("exaul", ARMS, alpha=ALPHA, horizon=HORIZON)
    cuts = exaul.cuts(exaul.grid("uniform", ARMS), scores)

    def tuned(eta: Any) -> Any:
        return params._replace(eta=eta, gamma=eta / 2)

    def regret(eta: jax.Array, uniforms: jax.Array) -> jax.Array:
        answers = exaul.play(learner, tuned(eta), cuts, errors, uniforms)
        return exaul.regret(learner, tuned(eta), cuts, errors, answers)

    rates = params.eta * SCALES
    games = jax.vmap(jax.vmap(regret, in_axes=(None, 0)), in_axes=(0, None))
    regrets = np.asarray(jax.jit(games)(rates, rng.random((SEEDS, HORIZON))))
    return regrets, [float(exaul.regret_bound(learner, tuned(eta), HORIZON, delta=1)) for eta in rates]


def main(path: str = "regret.png") -> None:
    """Play, draw the mean regret over seeds for each rate to a file, and print it after the last round."""
    with jax.enable_x64(True):
        regrets, bounds = compute_regrets()
    figure = Figure(figsize=(3.3, 3.1), layout="constrained")
    axes = figure.subplots()
    for scale, regret, bound, (color, dashes) in zip(SCALES, regrets.mean(axis=1), bounds, STYLES, strict=True):
        label = f"$\\eta \\times$ {scale:g} (at most {bound:,.0f})"
        axes.plot(regret, color=color, ls=dashes, lw=1.2, label=label)
        print(f"eta x {scale:g}: regret {regret[-1]:.0f} after {HORIZON:,} rounds, at most {bound:.0f} in the mean")
    axes.set_xlabel("round $t$", fontsize=8)
    axes.set_ylabel("regret (in units of the loss)", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.set_xlim(0, HORIZON)
    axes.set_ylim(0, 1.4 * regrets.mean(axis=1).max())  # the legend is above the lines
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left", fontsize=7)
    caption = f"Mean over {SEEDS} seeds; the paper has $\\eta \\times$ 1."
    caption += "\nIn brackets: the proven bound of the mean at T."
    figure.supxlabel(caption, fontsize=7, color="#444444")
    figure.savefig(path, dpi=200)
    print(f"the regret after each round: {path}")


if __name__ == "__main__":
    main()
