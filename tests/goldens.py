"""Hashes of what is computed, so that a change of the code that should change no result can be seen to change none.

``python -m tests.goldens`` writes ``goldens.json``. Floating-point results differ between machines: check out the
commit before the change, write the file there, and compare the change with it on the same machine. Values are
hashed and names are not, so that a column may be renamed.
"""

import hashlib
import json
import platform
import re
import tempfile
from importlib import metadata
from itertools import product
from pathlib import Path

import jax
import numpy as np

import tests.conftest  # noqa: F401  # XLA compiles as in the tests
from exaul import Abstainer, Sweep, run
from exaul.engine import registry
from exaul.engine.registry import backend_of
from tests.games import ADAPTIVE_CASES

PATH = Path(__file__).with_name("goldens.json")
SIZE = {"horizon": 2300, "trials": 3, "arms": 60, "checkpoints": 9, "alphas": (0.05, 0.2), "seed": 3}
OBLIVIOUS = ("stochastic", "single-shift", "alternating-shift", "gradual-shift", "replay")
COMPILED = ("native",)  # backends whose loops share the arithmetic of every environment and precision
ADAPTIVE = (  # of ADAPTIVE_CASES
    *("adversary-history", "adversary-history-knowing", "adversary-omniscient", "adversary-omniscient-patient"),
    *("adversary-omniscient-regret", "interactive", "always-wrong"),
)
NUMBERS = {
    "anytime": {"anytime": True},
    "rates by hand": {"eta": 0.02, "gamma": 0.05},
    "lambdas": {"lambdas": (0.0, 3.0), "grid": "logit"},
    "quantile": {"grid": "quantile", "checkpoints": 1},
    "two arms": {"arms": 2},
    "many trials": {"trials": 200, "horizon": 1300, "environment": "replay"},
}
FEEDBACK = {  # imperfect feedback
    "delayed": {"delay": 30},
    "rare": {"feedback_rate": 0.3, "delay": 10},
    "biased and flipped": {"feedback_rate": 0.5, "bias": 3.0, "flips": (0.05, 0.2)},
    "missing is wrong": {"feedback_rate": 0.6, "missing": "wrong", "expires": 300},
    "uncorrected": {"feedback_rate": 0.5, "bias": 2.0, "uncorrected": True},
}
RESERVE = {"feedback_rate": 0.9, "delay": 20, "missing": "wrong", "reserve": True, "expires": 100}
ABSTAINERS = {
    "plain": {},
    "reserve": {"reserve": True, "missing": "wrong", "expires": 50},
    "audited": {"audit": 0.3},
    "biased and flipped": {"bias": 3.0, "flips": (0.05, 0.2), "expires": 200},
}


def stamp():
    """What results depend on beside the code."""
    info = Path("/proc/cpuinfo")  # processors of one name may differ in the instructions that LLVM may use
    lines = re.findall(r"^(?:model name|flags)\s*: (.*)", info.read_text(), re.MULTILINE) if info.exists() else []
    versions = {name: metadata.version(name) for name in ("jax", "jaxlib", "numba", "numpy")}
    return {
        "machine": lines[0] if lines else platform.processor(),
        "instructions": hashlib.sha256(" ".join(lines[1:2]).encode()).hexdigest(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        **versions,
    }


def learners():
    """The learners by name, but the one that starts from a built-in profile: the sweeps have logs."""
    references = registry.LEARNERS.items()
    return {name: registry.load_object(reference) for name, reference in references if name != registry.FROM_LOG}


def cases():
    """The sweeps by name: fields of ``Sweep``, and whether feedback is a rating."""
    by_name = learners()
    for backend in registry.BACKENDS:
        names = tuple(name for name, learner in by_name.items() if backend_of(learner, backend, "float64"))
        for environment in OBLIVIOUS if backend in COMPILED else OBLIVIOUS[:2]:
            for precision, ratings in (("float64", False), ("float64", True), ("float32", False)):
                name = f"{environment}, {backend}, {precision}, {'ratings' if ratings else 'binary'}"
                fields = {"environment": environment, "backend": backend, "precision": precision}
                yield name, SIZE | fields | {"learners": names}, ratings
    for name, fields in NUMBERS.items():
        yield name, SIZE | {"learners": tuple(by_name)} | fields, True
    adaptive_learners = tuple(name for name, learner in by_name.items() if learner.feedback != "hindsight")
    for name, ratings in product(ADAPTIVE, (False, True)):
        kind = "ratings" if ratings else "binary"
        yield f"{name}, {kind}", SIZE | ADAPTIVE_CASES[name] | {"learners": adaptive_learners}, ratings
    dense = {"learners": ("exaul", "exp3-ix"), "backend": "dense"}
    yield "adversary-history, dense", SIZE | ADAPTIVE_CASES["adversary-history"] | dense, False
    # those that learn from feedback on their own answers, also where it comes late
    bandits = tuple(name for name, learner in by_name.items() if learner.feedback == "bandit")
    for (name, fields), backend in product(FEEDBACK.items(), ("rows", "dense")):
        yield f"{name}, {backend}", SIZE | fields | {"learners": bandits, "backend": backend}, False
    holding = tuple(x for x in bandits if getattr(by_name[x].rule, "reserve", None) is not None)
    for backend in ("rows", "dense"):
        yield f"reserve, {backend}", SIZE | RESERVE | {"learners": holding, "backend": backend}, False


def logs(folder, ratings):
    """Two logs, the second harder, with ties and scores of exactly 0 and 1."""
    rng = np.random.default_rng(11)
    paths = []
    for name, power in (("easy", 0.3), ("hard", 1.0)):
        score = np.where(rng.random(2400) < 0.3, rng.integers(0, 6, 2400) / 5, rng.beta(4, 1, 2400))
        chance = np.round(score**power, 9)  # the last digits of a power differ between processors
        error = rng.random(2400) * (1 - chance) if ratings else rng.random(2400) > chance
        path = Path(folder) / f"{name}.csv"
        rows = "\n".join(f"{a!r},{float(b)!r}" for a, b in zip(score.tolist(), error.tolist(), strict=True))
        path.write_text(f"score,error\n{rows}\n")
        paths.append(str(path))
    return paths


def hashes(fields, ratings):
    """The hash of the numbers of each learner in all tables."""
    two = fields.get("environment", "stochastic") not in ("stochastic", "replay", "always-wrong")
    with tempfile.TemporaryDirectory() as folder:
        result = run(Sweep(**fields, logs=logs(folder, ratings)[: 1 + two]))
    digests = {}
    for table in (result.trials, result.curves, result.asked):
        if table is not None:
            for name, rows in table.groupby("learner", sort=False):
                numbers = np.ascontiguousarray(rows.select_dtypes("number").to_numpy(np.float64))
                digests.setdefault(name, hashlib.sha256()).update(numbers.tobytes())
    return {name: digest.hexdigest()[:20] for name, digest in digests.items()}


def abstained(fields):
    """The hash of the decisions and figures of each learner in a program, whose feedback comes late or never."""
    digests = {}
    for name in ("aci-rank", "exaul")[: 1 if fields.get("reserve") else 2]:
        rng = np.random.default_rng(5)
        abstainer = Abstainer(learner=name, horizon=1000, seed=7, **fields)
        digest, waiting = hashlib.sha256(), []
        for _ in range(1000):
            score = float(rng.beta(4, 1))
            decision = abstainer.decide(score)
            digest.update(np.array([decision.answer, decision.probability, decision.audit]).tobytes())
            if decision.answer and rng.random() < 0.8:
                waiting.append((decision.id, float(rng.random() > score)))
            if len(waiting) > 20 or (waiting and rng.random() < 0.5):
                digest.update(abstainer.feedback(*waiting.pop(int(rng.integers(len(waiting))))).encode())
        figures = abstainer.figures()
        del figures["threshold"], figures["silent"]  # which are newer than the table
        digest.update(np.array([float(x) for x in figures.values() if isinstance(x, int | float)]))
        digests[name] = digest.hexdigest()[:20]
    return digests


def main():
    """Write the table."""
    table = {}
    for name, fields, ratings in cases():
        table[name] = hashes(fields, ratings)
        print(name, flush=True)
    table |= {f"Abstainer, {name}": abstained(fields) for name, fields in ABSTAINERS.items()}
    PATH.write_text(json.dumps({"stamp": stamp(), "cases": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
