"""Games for tests, a way to simulate them on a backend, and lists of what the registry has to test."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import chex
import jax
import numpy as np
import pandas as pd
import pytest

from exaul.engine import registry
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.logs.log import Records
from exaul.engine.registry import backend_of
from exaul.engine.simulation import jax_chunks as simulated
from exaul.engine.simulation.chunks import TILE, NativeSimulation, TrialRecords, select_rates
from exaul.kernels import uniforms
from exaul.kernels.game import BLOCK, SPAN, Block, Copies, Rates, compute_costs
from exaul.kernels.learners.learner import Sided, has_weights, start_copies, start_of
from exaul.kernels.native import NativeBackend, RecordBlocks
from exaul.kernels.play import advance_copies, initial_states
from exaul.kernels.records import make_streams
from exaul.kernels.rows import RowState
from exaul.kernels.uniforms import Draws
from experiments.paper import Paper

LEARNERS = {name: registry.load_object(reference) for name, reference in registry.LEARNERS.items()}
ENVIRONMENTS = {name: registry.load_object(reference) for name, reference in registry.ENVIRONMENTS.items()}
OBLIVIOUS = {name: x for name, x in ENVIRONMENTS.items() if isinstance(x, Oblivious)}
ADAPTIVE = {name: x for name, x in ENVIRONMENTS.items() if name not in OBLIVIOUS}
BACKENDS = list(registry.BACKENDS)
PAIRS = [  # every learner on every backend that has a loop for it
    (name, backend)
    for name, learner in LEARNERS.items()
    for backend in BACKENDS
    if backend_of(learner, backend, "float64") is not None
]
LOOPS = [  # of these, one learner of each rule: learners of one rule share its loops, and differ in rates
    (name, backend)
    for name, backend in PAIRS
    if name == next(other for other, learner in LEARNERS.items() if learner.rule is LEARNERS[name].rule)
]
WEIGHTED = [name for name, learner in LEARNERS.items() if has_weights(learner)]  # whose sums are rounded
LEARNING = [  # the paper's learners that learn
    name for name in registry.PAPER_LEARNERS if LEARNERS[name].feedback not in ("none", "hindsight")
]
ADAPTIVE_LEARNERS = [  # learners that can be simulated in an adaptive environment
    name for name, learner in LEARNERS.items() if learner.feedback != "hindsight"
]
# learners that Abstainer and the simulation of imperfect feedback are tested with
LEARN_LATE = "exaul", "exaul-known", "exp3-ix", "aci-rank"


def answer_once_more(monkeypatch):
    """Let copy 3 of each compiled simulation answer one round more, number 264."""
    collect = NativeSimulation.collect

    def changed(self):
        totals = collect(self)
        totals.answered[1, 7:, 3] += 1
        totals.answered[2:, :, 3] += 1
        return totals

    monkeypatch.setattr(NativeSimulation, "collect", changed)


def limit_traces(monkeypatch, limit):
    """Let programs of a sweep in JAX be traced, so many times together, and neither compiled nor run."""
    chex.clear_trace_counter()
    counted = chex.assert_max_traces(simulated.simulate_chunk.__wrapped__, limit)
    program = jax.jit(counted, static_argnames=("environment", "plan"))

    def trace(*arguments):
        return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), program.eval_shape(*arguments))

    monkeypatch.setattr(simulated, "simulate_chunk", trace)


def of_each_rule(names):
    """Of some learners one of each type of rule, for those of one type share their loops."""
    return list({type(LEARNERS[x].rule): x for x in reversed(names)}.values())


VALUES = {  # environments with values for their tunables, beside those with the defaults
    "adversary-history-knowing": (
        "adversary-history",
        *("groups=score", "knows=rates", "temperature=0.17", "memory=0.19", "curiosity=0.012"),
    ),
    "adversary-omniscient-greedy": ("adversary-omniscient", "objective=risk"),
    "adversary-omniscient-patient": ("adversary-omniscient", "objective=risk", "patience=0.65", "memory=0.003"),
    "adversary-omniscient-regret": ("adversary-omniscient", "objective=regret"),
    "interactive-stubborn": ("interactive", "again=0.9", "insists=0.8"),
}
ENVIRONMENT_CASES = {name: {"environment": name} for name in ENVIRONMENTS} | {
    name: {"environment": environment, "tunables": values} for name, (environment, *values) in VALUES.items()
}
ADAPTIVE_CASES = {name: fields for name, fields in ENVIRONMENT_CASES.items() if fields["environment"] in ADAPTIVE}


def tuning_of(name):
    """The values of the tunables of an environment of ``ADAPTIVE_CASES``, by name."""
    fields = ADAPTIVE_CASES[name]
    values = dict(text.split("=") for text in fields.get("tunables", ()))
    tunables = ADAPTIVE[fields["environment"]].tunables
    return {x.name: x.value(values[x.name]) if x.name in values else x.default for x in tunables}


def scores_of(kind, rng, rounds):
    """Scores [T] of one kind: ties, exact 0s and 1s, one level, or all different."""
    if kind == "levels":
        return rng.integers(0, 6, rounds) / 5
    if kind == "one level":
        return np.full(rounds, 0.6)
    if kind == "ends":
        return rng.choice([0.0, 1.0, 0.5, np.nextafter(1.0, 0.0)], rounds)
    if kind == "shift":
        return np.where(np.arange(rounds) < rounds // 2, rng.beta(6, 1, rounds), rng.beta(1, 6, rounds))
    if kind == "mixed":  # each block of another kind
        blocks = range(-(-rounds // BLOCK))
        return np.concatenate([scores_of(SCORES[n % len(SCORES)], rng, BLOCK) for n in blocks])[:rounds]
    return rng.beta(4, 1, rounds)


SLOW = ("blocks",)  # backends that compile for long: most of their cases are slow tests


def pytest_params(cases, quick=tuple(x for x in BACKENDS if x not in SLOW)):
    """Parameters of a test, slow where the last names a backend besides some, here those that compile quickly."""
    return [pytest.param(*x, marks=[] if x[-1] in quick else [pytest.mark.slow]) for x in cases]


SCORES = ("levels", "one level", "ends", "shift", "continuous")


def coins(stream, trials, rounds, count=1, seed=0):
    """Uniforms [T, count, trials] of a stream, as the trials of a sweep draw them."""
    keys = tuple(x[None, None] for x in uniforms.trial_keys(seed, stream, trials))
    numbers = np.arange(BLOCK * count, dtype=np.uint32).reshape(count, BLOCK).T[..., None]
    blocks = np.arange(-(-rounds // BLOCK), dtype=np.uint32)
    return np.concatenate([uniforms.uniform(keys, block, numbers) for block in blocks])[:rounds]


def records_of(rounds, seed=0, name="log", right=0.3):
    """A log whose right answers score higher; of those that score 0, a share ``right`` is right."""
    rng = np.random.default_rng(seed)
    scores = np.round(rng.random(rounds), 3)
    return Records(name, scores, (rng.random(rounds) > right + 0.7 * scores).astype(float), 0, None)


def save_log(records, path):
    """Write a log of records, and return its path."""
    pd.DataFrame({"score": records.scores, "error": records.errors}).to_csv(path, index=False)
    return str(path)


@contextmanager
def small_scale(horizon=3_000, trials=3):
    """Limit the rounds and trials of every sweep that an experiment makes."""
    full = Paper.sweep

    def sweep(paper, **fields):
        unlimited = full(paper, **fields)
        return replace(unlimited, horizon=min(unlimited.horizon, horizon), trials=min(unlimited.trials, trials))

    with mock.patch.object(Paper, "sweep", sweep):
        yield


def stream_of(pools, horizon, trials, environment="stochastic"):
    """The stream of some trials, by number from 0, in an oblivious environment."""
    values, numbers = OBLIVIOUS[environment], np.arange(trials)
    streamed = numbers if values.shuffled else numbers[:1]
    return TrialRecords(make_streams(values.choose_pool, values.shuffled, pools, horizon, 0, streamed), 0, numbers)


def first_of(rule, arms, copies, best=0, alphas=None, log=None):
    """What copies of a rule begin with; ``log`` are the cuts and errors of a log, for targets ``alphas`` [B]."""
    best = np.broadcast_to(np.asarray(best, np.int32), copies)
    alphas = np.full(copies, 0.1) if alphas is None else alphas
    return start_copies(rule, arms, start_of(rule, arms, alphas, log), np.arange(copies), best)


def simulate(rule, backend, arms, best, cuts, errors, uniforms, rates, alpha, lam, record=None, log=None):
    """Simulate rounds span by span: cuts and errors [T, R], uniforms [T, B], rates [K], alpha and lambda [B].

    ``backend`` is what ``backend_of`` returns for a learner with this rule; ``log`` is as of ``first_of``. Returns
    the state of all copies, which are padded, and the decisions [T, B].
    """
    copies = uniforms.shape[1]
    padded = np.arange(-(-copies // TILE) * TILE, dtype=np.int32) % copies
    record = np.arange(copies, dtype=np.int32) if record is None else record
    fields = alpha, *compute_costs(alpha, lam), record, np.arange(copies, dtype=np.int32), *np.ones((2, copies))
    each = Copies(*fields).take(padded)
    start = first_of(rule, arms, len(padded), best, each.alpha, log)
    decide = _compiled if isinstance(backend, NativeBackend) else _traced
    state, decisions = decide(backend, arms, start, each, cuts.astype(np.int32), errors, uniforms, rates)
    return state, decisions[:, :copies]


def _compiled(backend, arms, start, copies, cuts, errors, uniforms, rates):
    simulation, decisions = NativeSimulation(backend, copies, start, arms, cuts.shape[1]), []
    for first in range(0, len(cuts), SPAN):
        rows = slice(first, first + SPAN)
        round_count, blocks = len(cuts[rows]), -(-len(cuts[rows]) // BLOCK)
        records = RecordBlocks(round_count, *(np.ascontiguousarray(x[rows].T) for x in (cuts, errors, uniforms)))
        block_rates = select_rates(rates, np.arange(first // BLOCK, first // BLOCK + blocks))
        # a checkpoint after each round
        chunk = SimpleNamespace(checkpoint_rounds=np.tile(np.arange(1, BLOCK + 1, dtype=np.int32), (blocks, 1)))
        simulation.submit(chunk, block_rates, records)
        decisions.append(simulation.collect().answered.reshape(-1, len(copies.alpha))[:round_count])
    return simulation.state, np.diff(np.concatenate(decisions), axis=0, prepend=0) > 0


_advance_copies = jax.jit(advance_copies, static_argnames=("learner", "same_records"))


def _traced(backend, arms, start, copies, cuts, errors, uniforms, rates):
    learner = backend.make(arms)
    with jax.enable_x64(True):
        state, decisions, shared = initial_states(learner, start), [], cuts.shape[1] == 1  # one stream for all
        for first in range(0, len(cuts), BLOCK):
            rows = slice(first, first + BLOCK)
            # a round that pads a block may change a learner's state, unless it computes whole blocks
            pad = [(0, BLOCK - len(cuts[rows]) if hasattr(learner, "advance_block") else 0), (0, 0)]
            records = np.pad(cuts[rows], pad, constant_values=1), np.pad(errors[rows], pad)
            records = (x[:, 0] if shared else x[:, copies.record_stream] for x in records)
            drawn = Draws(np.pad(uniforms[rows], pad)[:, copies.draw_stream])
            block = Block(*records, drawn, np.arange(len(drawn.decision)) < len(cuts[rows]))
            number = np.uint32(first // BLOCK)
            block_rates = Rates(*(x[0] for x in select_rates(rates, number[None])))
            params = copies.rule_params(block_rates, number, backend.imperfect)
            state, answered = _advance_copies(learner, state, block, params, same_records=shared)
            decisions.append(answered)
    return state, np.concatenate(decisions)[: len(cuts)]


def losses_of(rule, backend, arms, state):
    """The cumulative charges of the arms of all copies, of which the first arm's is 0; a rule with weights."""
    if not isinstance(backend, NativeBackend):
        losses = state
        if isinstance(state, RowState):
            losses = (state.losses + state.offset[..., None]).reshape(len(state.losses), -1)[:, :arms]
        losses = np.asarray(losses)
    else:
        losses = np.cumsum(state, axis=1) if isinstance(rule, Sided) else state
    return losses - losses[:, :1]
