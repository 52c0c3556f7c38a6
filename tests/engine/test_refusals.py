"""What cannot be used is refused with one sentence: by functions, and by the command before it writes a file."""

import inspect
import math
import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import exaul
from exaul import Abstainer, BadInput, Sweep, regret_scaling, run
from exaul.engine import registry
from exaul.engine.registry import load_object
from exaul.engine.simulation.prepare import prepare_source
from tests.commands.boundaries.helpers import refused
from tests.engine import test_games as games
from tests.engine.test_traces import FLAGS, write

bad_environment = load_object(registry.ENVIRONMENTS["adversary-history"])
REFIT = "experiments.rivals:refit"
SHARE = f"{games.__name__}:share"
SMALL = {"trials": 2, "horizon": 300, "arms": 20, "learners": "aci-rank"}
NO_COUNT = "reserve: given, but exaul cannot count"
CHECKPOINTS = "-1", "1.5", "\u00b2", (), ("log", "5"), (5, 301), 2**31, True, (5, None)
SWEEPS = [  # fields
    ({"feedback_rate": 0.0}, r"feedback_rate: 0\.0 found; it must be in \(0, 1\]"),
    ({"flips": (0.5, 0.5)}, r"flips: .* whose sum is below 1"),
    ({"flips": (0.1,)}, "flips: .* two numbers"),
    ({"missing": "maybe"}, "missing: 'maybe' is unknown; one of skip, wrong, right"),
    ({"reserve": True, "feedback_rate": 0.5}, "reserve: given, but answers that never get feedback"),
    ({"missing": "right", "bias": 3.0}, "missing: 'right' found; if the aim corrects"),
    ({"reserve": True, "delay": 3, "learners": "exaul"}, NO_COUNT),
    ({"feedback_rate": 0.5, "learners": REFIT}, f"learners: {REFIT} .*: leave out feedback_rate, or"),
    ({"feedback_rate": 0.5, "backend": "native"}, "backend: native found; .* it must be rows or dense"),
    ({"eta": "x"}, "^eta: 'x' found; it must be a number$"),
    ({"gamma": 0.0, "learners": "ew"}, "^gamma: given, but none of the learners has it: ew$"),
    ({"eta_scales": (1, 2)}, "^eta_scales: given, but none of the learners has it: aci-rank$"),
    ({"gamma_scales": 2, "learners": "ew"}, "^gamma_scales: given, but none of the learners has it: ew$"),
    ({"environment": bad_environment._replace(ask=None)}, "^environment: this Adaptive has no name; assign"),
    ({"eta_scales": ()}, r"^eta_scales: \(\) found; it must be at least one"),
    ({"eta_scales": (0,)}, r"^eta_scales: 0\.0 found; it must be"),
    ({"eta_scales": (1e200,), "gamma_scales": (1e200,)}, r"^gamma_scales: 1e\+200 found; it must be smaller"),
    ({"eta_scales": (2, 2)}, r"^eta_scales: 2\.0 is given twice"),
    ({"eta_scales": (2,), "eta": 0.1}, "^eta_scales: given together with eta"),
    ({"eta_scales": (2,), "gamma": 0.1}, "^eta_scales: given together with gamma"),
    *(({"checkpoints": given}, r"^checkpoints: .*it must be") for given in CHECKPOINTS),
    ({"learners": [games.mine._replace(rate_field="step")]}, "^learners: this Learner has no name; assign"),
    ({"learners": [5]}, "^learners: 5 found; it must be a string"),
    ({"learners": [games.share], "environment": "adversary-omniscient"}, f"^learners: {SHARE} .*no distribution"),
    ({"learners": [games.share], "delay": 9}, f"^learners: {SHARE} .*perfect feedback: leave out delay, or write"),
    ({"learners": [games.no_rates]}, "has weights and no rates"),
    ({"learners": [games.bad_bound]}, r"^learners: regret_bounds.best of .*of \(eta, gamma, "),
]
ABSTAINERS = [
    ({"learner": "ew"}, "learner: 'ew' is unknown; one of aci-rank, exaul"),
    ({"learner": "exaul"}, "horizon: missing; exaul needs it"),
    ({"horizon": 0}, "horizon: 0"),
    ({"alpha": 0}, "alpha: 0"),
    ({"alhpa": 0.1}, "alhpa"),
    ({"reserve": True, "missing": "wrong", "learner": "exaul", "horizon": 9}, NO_COUNT),
    ({"audit": 0.0}, r"audit: 0\.0 found; it must be in \(0, 1\]"),
    ({"audit": 0.1, "missing": "right"}, "audit: given, but all audited answers get feedback"),
    *(({name: "x"}, f"{name}: given without warm_start") for name in ("score", "error", "correct")),
]
PAST = [  # a log that an Abstainer starts from
    (3, r"warm_start: 3 found; it must be a file, a DataFrame, or \(scores, errors\)"),
    (([0.5, 2.0], [0, 1]), r"warm_start: scores\[1\] is 2.0; it must be a number in \[0, 1\]"),
    (([0.5, 0.2], [0, math.nan]), r"warm_start: errors\[1\] is nan; it must be a number in \[0, 1\]"),
    (([0.5], [0, 1]), "warm_start: 1 scores and 2 errors; there must be as many, at least one"),
    (([], []), "warm_start: 0 scores and 0 errors; there must be as many, at least one"),
    ([(0.3, 1), (0.4, 0)], r"warm_start: .* found; it must be a file, a DataFrame, or \(scores, errors\)"),
    (pd.DataFrame([[0.5, 1, 2, 2]], columns=["score", "error", "a", "a"]), "warm_start: two columns have one name"),
    ((["a"], [0]), "warm_start: scores are"),
    (pd.DataFrame({"score": [0.5]}), "warm_start"),
    (pd.DataFrame({"score": [0.5, 3], "error": [1, 0]}), "warm_start"),
]
MADE = [  # a learner with its numbers
    ({"learner": "nobody"}, "learner: 'nobody' is unknown"),
    ({"learner": "best-fixed"}, "learner: 'best-fixed' found; it must be a learner without hindsight"),
    ({"alpha": 1.5}, r"alpha: 1.5 found; it must be a number in"),
    ({"arms": 1}, "arms: 1 found"),
    ({"horizon": None}, "lam: not given; give it, or the horizon, from which it follows"),
    ({"horizon": None, "lam": 3.0}, "eta: not given; give it, or the horizon, from which it follows"),
    ({"eta": -1.0}, "eta: -1.0 found"),
    ({"learner": "aci-rank", "eta": 3}, r"eta: 3 found; it must be in \(0, 1\], a step of aci-rank"),
    ({"learner": "aci-rank", "log": ([0.5], [1.0])}, "log: given without grid"),
]
ENVIRONMENTS = [  # name, number of logs, and more
    ("nothing", 1, {}, "^environment: 'nothing' is unknown"),
    ("single-shift", 1, {}, r"^scores, errors: .* must be 2 arrays: single-shift plays two logs"),
    ("stochastic", 2, {}, r"^scores, errors: .* must be 1 array: stochastic plays one log"),
    ("stochastic", 1, {"tunables": {"groups": "score"}}, r"^tunables: stochastic has no tunable 'groups'"),
    ("adversary-history", 2, {"tunables": {"temperature": 9}}, r"^tunables: temperature=9 found"),
    ("adversary-omniscient", 2, {}, "^horizon: not given"),
]
PLAYED = [  # what ``play`` is given in place of a game
    ("cuts", [0.5, 0.9], r"^cuts: 'float64' found; it must be integers, as exaul.cuts"),
    ("cuts", [0, 1], r"^cuts: \[0\] found; it must be from 1 to 19"),
    ("cuts", [1, 20], r"^cuts: \[20\] found; it must be from 1 to 19"),
    ("errors", [1.0, np.nan], r"^errors: \[nan\] found; it must be from 0 to 1"),
    ("uniforms", [1.0, 0.5], r"^uniforms: \[1.0\] found; it must be in \[0, 1\)"),
    ("uniforms", [0.5], r"^cuts, errors, uniforms: .*; it must be \[T\] each"),
]
GAME = {"cuts": np.array([1, 19]), "errors": np.array([0.0, 1.0]), "uniforms": np.array([0.0, 0.5])}


def sweep(fields):
    return run(Sweep(**SMALL | fields))


def make(learner="exaul", **more):
    """A learner of 70 arms with its numbers."""
    return exaul.make(learner, **{"arms": 70, "alpha": 0.2, "horizon": 700} | more)


def logs(count):
    """Scores and errors of some logs."""
    return [[getattr(log, column) for log in games.logs(count)] for column in ("scores", "errors")]


def environment(name, count, more):
    """An environment of some logs."""
    return exaul.environment(name, *logs(count), exaul.grid("uniform", 40), **more)


def play(rates=1.0, **game):
    """Play a game of the first learner, whose eta is multiplied."""
    learner, params = exaul.make("exaul", 20, alpha=0.1, horizon=300)
    return exaul.play(learner, params._replace(eta=params.eta * rates), **GAME | game)


def falling(horizon):
    """A learner whose rates fall, and its numbers."""
    return exaul.make("exaul", 20, alpha=0.1, horizon=horizon, anytime=True)


def regret(lam=9.0, **game):
    """The regret of a game that was never answered."""
    given = {"cuts": GAME["cuts"], "errors": GAME["errors"], "answers": GAME["cuts"] < 0}
    learner, params = exaul.make("exaul", 20, alpha=0.1, horizon=300)
    return exaul.regret(learner, params._replace(lam=lam), **given | game)


def game_of(rounds):
    return dict.fromkeys(GAME, np.ones(rounds, int))


def in_float32(function):
    """Call a function where JAX computes in float32."""
    with jax.enable_x64(False):
        function(*[None] * len(inspect.signature(function).parameters))


GAMES_IN = [  # what ``play_in`` is given in place of a game
    ({"key": 0}, "^key: 'int' found; it must be one game's key: jax"),
    ({"key": exaul.keys(0, 2)}, "^key: .* one game's key"),
    ({"horizon": 0}, "^horizon: 0 found"),
    ({"horizon": 10_000}, r"^horizon: 10000 found; it must be at most \d+, its horizon"),
]
WITHOUT = [("eta", {"learner": "no-abstention", "eta": 0.1}), ("gamma", {"learner": "ew", "gamma": 0.1})]


def play_in(**given):
    """Play a replay of a log."""
    asked = exaul.environment("replay", *logs(1), exaul.grid("uniform", 70))
    key = jax.tree.map(lambda x: x[0], exaul.keys(0, 1))
    return exaul.play_in(*make(), *asked, **{"key": key, "horizon": 9} | given)


def ask_beyond(state, pool, objective, draws, distribution):
    """Ask a cut that no grid has."""
    return bad_environment.ask(state, pool, objective, draws, distribution)._replace(cut=jnp.int32(100_000))


def traced(name):
    """Make a grid of scores that JAX traces."""
    return jax.jit(partial(exaul.grid, name, 10))(logs(1)[0][0])


CALLS = [
    *((partial(sweep, fields), sentence) for fields, sentence in SWEEPS),
    *((partial(Abstainer, **fields), sentence) for fields, sentence in ABSTAINERS),
    *((partial(Abstainer, alpha=0.1, warm_start=log), sentence) for log, sentence in PAST),
    *((partial(make, **fields), sentence) for fields, sentence in MADE),
    *((partial(environment, *given), sentence) for *given, sentence in ENVIRONMENTS),
    *((partial(play, **{name: np.array(value)}), sentence) for name, value, sentence in PLAYED),
    (lambda: jax.jit(lambda cuts: play(cuts=cuts))(GAME["errors"]), "must be integers"),  # types are known
    (lambda: play(np.ones(2), **game_of(600)), r"^eta, gamma: .* it must be \[\] each, or"),
    (lambda: play(np.ones(3), **game_of(500)), r"^eta, gamma: .* or \[2\], of"),  # not vmap
    (lambda: exaul.play(*falling(256), **game_of(600)), r"^eta, gamma: .* or \[3\], of"),
    (lambda: exaul.regret_bound(*falling(256), 600), r"^eta, gamma: .* or \[3\], of"),
    (lambda: exaul.play_in(*falling(256), None, None, None, 600), r"^eta, gamma: .* or \[3\], of"),
    (lambda: play(-1), r"^eta: \[-0\.\d+\] found"),
    (
        lambda: exaul.play(make()[0], make("aci-rank")[1], **GAME),
        "^params: 'RankedParams' found; it must be Params, from",
    ),
    (lambda: exaul.regret_bound("exaul", make()[1], 9), "^learner: 'exaul' found; it must be from exaul.make"),
    (lambda: jax.jit(lambda x: exaul.regret_bound(make()[0], x, 9))(make()[1]), "^params, rounds: .* outside jit"),
    (lambda: jax.jit(partial(exaul.risk_bound, *make(), 9))(9), "^params, t: .* outside jit"),
    (lambda: exaul.risk_bound(*make(), [8, 9], [8, 10]), r"^answered: \[8, 10\] found; .* from 0 to t"),
    (lambda: exaul.risk_bound(*make(), [8, 9], [0, 0, 0]), r"^t, answered: \(2,\) and \(3,\) found; .* broadcast"),
    (lambda: exaul.risk_bound(*falling(256), 600, 0), r"^eta, gamma: .* or \[3\], of"),
    *((partial(play_in, **given), sentence) for given, sentence in GAMES_IN),
    (lambda: exaul.keys(-1, 1), "^seed: -1 found"),
    (lambda: exaul.keys(0, -4), r"^trials: \[-4\] found"),
    (lambda: exaul.keys(0, 1.5), "^trials: 1.5 found; it must be integers"),
    (lambda: make(arms=10.5), "^arms: 10.5 found; it must be an integer from 2"),
    (lambda: exaul.environment("stochastic", [], [], [0, 1]), "^scores, errors: .* not empty"),
    (lambda: exaul.play("exaul", make()[1], **GAME), "^learner: 'exaul' found; it must be from exaul.make"),
    (lambda: run("exaul"), "^sweep: 'exaul' found"),
    (lambda: Sweep(logs=pd.DataFrame({"score": [0.5]})), "^logs: 'DataFrame' found; it must be paths; a table is"),
    (lambda: make(arms=71, grid=np.linspace(0, 1, 70)), "^arms: 71 found; it must be 70"),
    *((partial(make, **x), f"^{rate}: given, but {x['learner']} has none") for rate, x in WITHOUT),
    (lambda: make("aci-rank", arms=2, grid=[0, 1], log=([0.5, 0.5], [1])), r"^log: \[2, 1\] found"),
    (lambda: exaul.grid("quantile", 5, [0.1, 8.0]), r"^scores: \[8.0\] found"),
    (lambda: environment(bad_environment._replace(ask=ask_beyond), 2, {}), "ask returns cut"),
    (
        lambda: environment(object(), 1, {}),
        "^environment: .* 'module:name', or of the type Oblivious or Adaptive",
    ),
    (lambda: regret(answers=GAME["uniforms"]), "^answers: 'float64' found; it must be bool"),
    (lambda: regret(-1), r"^lam .*: \[-1\] found"),
    (lambda: regret(math.nan), r"^lam .given to exaul.make, or by a horizon there.: .nan. found"),
    (lambda: regret(errors=50 * GAME["errors"]), r"^errors: \[50.0\] found"),
    *((partial(in_float32, x), r"^JAX computes in float32") for x in (exaul.play_in, exaul.regret)),
    (partial(in_float32, lambda: make()), r'add .*: jax.config.update\("jax_enable_x64", True\)'),
    (lambda: exaul.grid("log", 10), "scores: not given; the grid log is made of them"),
    (lambda: traced("log"), r"^scores: traced by JAX, but how many are"),
    (lambda: exaul.cuts([0.0, 1.0], [np.nan]), r"^scores: \[nan\] found"),
    *((partial(exaul.cuts, x, [0.1]), "^grid: .*sorted") for x in ([0.5, 0.2], [], [0.5])),
    (lambda: exaul.cuts([0, 50], [0.1]), r"^grid: \[50\] found"),
    (lambda: exaul.grid("uniform", 1), "^arms: 1 found"),
    (lambda: exaul.make("exaul", grid=[0, 1], alpha=0.1, horizon=9, log=([0.5], [1])), "does not start from"),
    (lambda: exaul.make("aci-rank-from-log", 40, alpha=0.1), "^log: not given, .*starts from one; give grid="),
    (
        lambda: exaul.make(games.no_rates, alpha=0.1, horizon=9),
        "^eta: not given; give it, or .* if the Learner has rates=",
    ),
    (lambda: exaul.make(games.share._replace(feedback="Full"), alpha=0.1), "^learner: feedback: 'Full' is unknown"),
    (lambda: exaul.make("aci-rank", grid=[0, 1], alpha=0.1, log=([0.5], [2])), r"^errors: \[2.0\] found"),
    (lambda: exaul.environment("replay", [0.5, 0.6], [1.0], [0, 1]), "^scores, errors: "),
    *((partial(regret_scaling, Sweep(), x), r"^horizons: ") for x in (1000, [100], [100, 100])),
    # a sweep is data: what it names is looked up when it is prepared
    (partial(prepare_source, Sweep(**SMALL | {"learners": ("absent:mine",)})), "'absent:mine' cannot be imported"),
]


@pytest.mark.parametrize(("call", "sentence"), CALLS, ids=[f"{n}: {x[1][:30]}" for n, x in enumerate(CALLS)])
def test_a_function_refuses_in_one_sentence(call, sentence):
    with pytest.raises(BadInput, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_what_is_refused_above_is_otherwise_accepted():
    assert play().shape == (2,)
    assert Sweep(logs=[Path("a.csv")], out=Path("out")) == Sweep(logs="a.csv", out="out")
    assert make("ew", horizon=None, eta=0.1, lam=3.0)[1].gamma == 0  # which it has not, so none is required
    assert traced("quantile").shape == (10,)


FRACTION = r"it must be a log, or a fraction in \(0, 1\), such as 0.5"
OUT_OF_RANGE = "alphas 0.0,alphas 1.0,alphas nan,delta 1.0,lambdas -1.0,lambdas inf,trials 0,horizon 0,"
OUT_OF_RANGE += "checkpoints 0,arms 1,seed -1,eta 0.0,gamma -0.1"
TUNABLES = "--environment adversary-omniscient --tunables"
BAD = {  # LOGS is a folder of one log, which is LOG
    f"{TUNABLES} memory=0": "tunables: memory=0 found; it must be a number from 0.001 to 0.5",
    f"{TUNABLES} patience=nan": "tunables: patience=nan found; it must be a number from 0 to 1",
    f"{TUNABLES} patience=much": "tunables: patience=much found; it must be a number from 0 to 1",
    f"{TUNABLES} objective=loss": "tunables: objective=loss found; it must be one of trust, risk, regret",
    f"{TUNABLES} patients=0.5": "tunables: adversary-omniscient has no tunable 'patients'; it has: ",
    **{
        f"{TUNABLES} {x}": f"tunables: '{x}' found; it must be NAME=VALUE"
        for x in ("patience", "patience=", "=0.5")
    },
    f"{TUNABLES} patience=0.1 patience=0.2": "tunables: patience is given twice",
    "--environment always-wrong --tunables x=1": "tunables: always-wrong has no tunable 'x'; it has: none",
    "--environment adversary-history --learners best-fixed": "learners: ",
    "--environment adversary-history --group topic": "group: ",
    "--environment adversary-history --sources nq-like": "sources: ",
    **{f"--environment {name}": "environment: " for name in ("own:number", "own:absent", "absent:own", "own:")},
    "--logs LOGS --each model nothing": "each: no log has a column 'nothing'",
    "--logs LOG --each model model": "each: model is given twice",
    "--logs LOG --each model --least 500": "least: 500 found; no trace has that many records",
    "--logs LOG --least 5": "least: given, but this is one sweep",
    "--logs LOG --each model --least 0": "least: 0 found; it must be from 1 to",
    "--each model": "logs: none given; a sweep over traces needs",
    "--logs LOG --each model --score grade": ".*log.csv: no column 'grade' or beginning with it; the log has",
    "--logs LOG --each model --error wrong": ".*log.csv: no column 'wrong'; the log has",
    "--logs LOG:model=x --each model": ".*log.csv: model: 'x' is unknown; one of m/1, n 2",
    "--logs LOG:kind=x --each model": ".*log.csv: no column 'kind'",
    "--logs LOGS --environment single-shift": "environment: single-shift found; it needs 2 traces that differ only",
    "--logs LOGS --environment interactive": "environment: interactive found; a sweep over traces needs",
    "--logs LOGS --environment replay --horizon 200": "horizon: 200 found; replay of log:? ?.* has 150 rounds",
    "--logs LOGS --group model": "group: given, but stochastic does not choose among groups",
    "--logs empty": r"empty\: the folder contains no logs; a log must end in .csv,",
    "--logs LOGS --score model": ".*row 1: model is",
    "--logs LOG:model=a,model=b": ".*a column may be given only once",
    "--logs odd.csv --each model": "each: 'odd.csv:model=a,b=c' found; its values must not contain",
    **{f"--logs rows.csv --warm-start {x}": f"warm_start: '{x}' found; {FRACTION}" for x in ("50", "0", "nan")},
    "--logs rows.csv --warm-start 0.0001": "warm_start: 0.0001 found; of the 40 records of rows, that leaves none",
    "--logs rows.csv --warm-start nowhere.csv": ".*nowhere.csv",
    "--logs rows.csv --warm-start bad.csv": ".*bad.csv",
    "--grid log": "grid: log found; it has the scores of a log from the past",
    "--ray auto --dask local": "ray: given together with dask",
    "--ray auto --batches 0": "batches: 0 found",
    **{f"--{x}": f"{x.replace(' ', ': ')} found" for x in OUT_OF_RANGE.split(",")},
    "--alphas x": "argument --alphas: invalid number value: 'x'\n",
    "--alphas 0.1,0.2": "argument --alphas: invalid number value: '0.1,0.2'; separate values by spaces",
    "--alphas 0.1 0.1": "alphas: 0.1 is given twice",
    "--trials 15e-1": "argument --trials: invalid integer value: '15e-1'",
    "--learners exaul nobody": "learners: 'nobody' is unknown; one of exaul",
    "--learners exaul,ew": "learners: 'exaul,ew' is unknown; .*, aci-rank-from-log; separate values by spaces\n",
    "--learners ew epsg": r"learners: epsg.py found; did you mean epsg:mine or epsg:other\?\n",
    "--learners own.py": "learners: own.py found; name an object in it, as in own:mine\n",
    "--environment mars": "environment: 'mars' is unknown; one of stochastic",
    "--grid fine": "grid: 'fine' is unknown; one of uniform",
    "--precision float16": "precision: 'float16' is unknown",
    "--sources nq-lik": "sources: 'nq-lik' is unknown; .*; did you mean nq-like",
    "--sources nq-like nq-like": "sources: 2 given; stochastic needs 1",
    "--environment single-shift --sources nq-like": "sources: 1 given; single-shift needs 2",
    "--environment single-shift --logs mine.csv": "logs: 1 given; single-shift needs 2",
    "--logs mine.csv --sources nq-like": "logs: given together with sources",
    "--logs mine.csv --error error --correct error": "error: given together with correct",
    "--logs mine.csv --score confidence": "mine.csv: no column 'confidence'",
    "--logs mine.csv --score correct --correct correct": "mine.csv: 'correct' named as the column of scores and of",
    "--logs mine.csv:model=c": "mine.csv: model: 'c' is unknown; one of a, b",
    "--logs none.csv": "none.csv: no such file",
    "--environment replay --logs mine.csv --horizon 401": "horizon: 401 found; replay of mine has 400 rounds",
    "--out used": "out: .* is not empty",
    "--out mine.csv": "out: .* is a file",
    "--out mine.csv/deep": "out: .* cannot be written",
    "--backend quantum": "backend: 'quantum' is unknown; one of native",
    "--backend blocks --eta 9": "backend: blocks found; at eta = 9 .* it must be rows or dense",
    "--steps 0.5": "steps: given, but none of the learners has it: exaul, ew",
    "--steps 2": "steps: 2.0 found; it must be in .0, 1.",
    "--shard 2/1": "shard: '2/1' found; it must be I/N, 1 <= I <= N",
    "--alphas": "argument --alphas: expected at least one argument",
    "--trial 3": "unrecognized arguments: --trial 3; did you mean --trials\\?\n",
    "--eta 0.01 0.1": "unrecognized arguments: 0.1\n",
}


@pytest.mark.parametrize("flags", BAD)
def test_a_command_refuses_in_one_line_and_writes_nothing(flags, capsys, in_folder, monkeypatch):
    write("logs/log.csv", rows=150)
    Path("empty").mkdir()
    Path("used").mkdir()
    for name, text in {
        "own.py": "number = 3\n",
        "epsg.py": "mine = exaul.Learner('bandit', 1/0)\nnumber = 3\nother: Learner = Learner(\n)\n",
        "odd.csv": 'score,error,model\n0.5,1,"a,b=c"\n',
        "rows.csv": "score,error\n" + "0.5,1\n0.7,0\n" * 20,
        "bad.csv": "score,error\n0.5,1\n1.5,0\n",
        "mine.csv": "score,error,model\n" + "0.5,1,a\n0.7,0,b\n" * 200,
        "used/mine.txt": "keep",
    }.items():
        Path(name).write_text(text)
    argv = flags.replace("LOGS", "logs").replace("LOG", "logs/log.csv").split()
    monkeypatch.setattr("sys.dont_write_bytecode", True)  # of own.py
    sentence = re.sub(r"^[a-z_]+(?=: )", lambda field: f"--{field[0].replace('_', '-')}", BAD[flags])
    assert re.match(f"exaul: {sentence}", refused(capsys, ["sweep", *FLAGS, "--out", "out", *argv]))
