"""Hashes of what sweeps report, so that a change of the code that should change no bit can be seen to change none.

``python -m tests.goldens`` writes ``goldens.json``. Floating-point results differ between machines: on a machine or
with versions other than those in its stamp, write it anew from the commit before the change.
"""

import hashlib
import json
import platform
import re
import tempfile
from importlib import metadata
from pathlib import Path

import jax
import numpy as np

from exaul import Sweep, run
from exaul.engine import registry
from exaul.engine.play.backends import backend_of

PATH = Path(__file__).with_name("goldens.json")
SIZE = {"horizon": 2300, "trials": 3, "arms": 60, "checkpoints": 9, "alphas": (0.05, 0.2), "seed": 3}
LEFT_OUT = ("rated", "fdr_rated", "aim", "thumb_risk", "thumb_risk_bound")  # empty, for these thumbs are perfect
OBLIVIOUS = ("stochastic", "single-shift", "alternating-shift", "gradual-shift", "replay")
ADAPTIVE = {
    "adversary-history": {"environment": "adversary-history"},
    "adversary-history tuned": {
        "environment": "adversary-history",
        "world": ("groups=score", "knows=rates", "temperature=0.17", "memory=0.19", "curiosity=0.012"),
    },
    "adversary-omniscient": {"environment": "adversary-omniscient"},
    "adversary-omniscient patient": {
        "environment": "adversary-omniscient",
        "world": ("objective=risk", "patience=0.65", "memory=0.003"),
    },
    "adversary-omniscient regret": {
        "environment": "adversary-omniscient",
        "world": ("objective=regret",),
    },
    "interactive": {"environment": "interactive"},
    "always-wrong": {"environment": "always-wrong"},
}
NUMBERS = {
    "anytime": {"anytime": True},
    "rates by hand": {"eta": 0.02, "gamma": 0.05, "step": "0.003/sqrt", "drift": "0.0001"},
    "lambdas": {"lambdas": (0.0, 3.0), "grid": "logit"},
    "quantile": {"grid": "quantile", "checkpoints": 1},
    "two arms": {"arms": 2},
    "many trials": {"trials": 200, "horizon": 1300, "environment": "replay"},
}


def stamp():
    """What bits depend on beside the code."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    versions = {name: metadata.version(name) for name in ("jax", "jaxlib", "numba", "numpy", "pandas")}
    return {
        "machine": model[1] if model else platform.processor(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        **versions,
    }


def cases():
    """The sweeps by name: fields of ``Sweep``, and whether feedback is a rating."""
    every = {name: registry.load(place) for name, place in registry.LEARNERS.items()}
    for backend in (name for name in registry.BACKENDS if name not in registry.NEEDED):  # on every machine
        learners = tuple(name for name, learner in every.items() if backend_of(learner, backend, "float64"))
        for environment in OBLIVIOUS:
            for precision in ("float64", "float32"):
                for ratings in (False, True):
                    name = f"{environment}, {backend}, {precision}, {'ratings' if ratings else 'binary'}"
                    fields = {"environment": environment, "backend": backend, "precision": precision}
                    yield name, fields | {"learners": learners}, ratings
    for name, fields in NUMBERS.items():
        yield name, {"learners": tuple(every)} | fields, True
    learners = tuple(name for name, learner in every.items() if learner.feedback != "hindsight")
    for name, fields in ADAPTIVE.items():
        for ratings in (False, True):
            yield f"{name}, {'ratings' if ratings else 'binary'}", fields | {"learners": learners}, ratings
    dense = {"learners": ("exaul", "exp3-ix", "log-price"), "backend": "dense"}
    yield "adversary-history, dense", ADAPTIVE["adversary-history"] | dense, False
    yield "adversary-history, float32", ADAPTIVE["adversary-history"] | {"precision": "float32"}, False


def logs(folder, ratings):
    """Two logs, the second harder, with ties and scores of exactly 0 and 1."""
    rng = np.random.default_rng(11)
    paths = []
    for name, power in (("easy", 0.3), ("hard", 1.0)):
        score = np.where(rng.random(2400) < 0.3, rng.integers(0, 6, 2400) / 5, rng.beta(4, 1, 2400))
        error = rng.random(2400) * (1 - score**power) if ratings else rng.random(2400) > score**power
        path = Path(folder) / f"{name}.csv"
        rows = "\n".join(f"{a!r},{float(b)!r}" for a, b in zip(score.tolist(), error.tolist(), strict=True))
        path.write_text(f"score,error\n{rows}\n")
        paths.append(str(path))
    return paths


def hashes(fields, ratings):
    """The hash of each table's rows of each learner, without the name of the environment, and what is left out."""
    two = fields.get("environment", "stochastic") not in ("stochastic", "replay", "always-wrong")
    with tempfile.TemporaryDirectory() as folder:
        result = run(Sweep(**SIZE | fields, logs=logs(folder, ratings)[: 1 + two]))
    found = {}
    for table in (result.trials, result.curves, result.asked):
        if table is not None:
            kept = table.drop(columns=["environment", *LEFT_OUT], errors="ignore")
            for name, rows in kept.groupby("learner", sort=False):
                found.setdefault(name, hashlib.sha256()).update(rows.to_csv(index=False).encode())
    return {name: digest.hexdigest()[:20] for name, digest in found.items()}


def main():
    """Write the table."""
    table = {}
    for name, fields, ratings in cases():
        table[name] = hashes(fields, ratings)
        jax.clear_caches()  # too many compiled programs crash a process
        print(name, flush=True)
    PATH.write_text(json.dumps({"stamp": stamp(), "cases": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
