"""A sweep is resolved once: names become learners with their backends, and an environment with its values."""

import pytest

from exaul import BadInput, Sweep
from exaul.engine.registry import DEFAULT_LEARNERS, FROM_LOG, STEPWISE_BACKENDS
from exaul.engine.simulation.prepare import prepare_source
from tests.games import (
    ADAPTIVE,
    ADAPTIVE_CASES,
    ADAPTIVE_LEARNERS,
    BACKENDS,
    ENVIRONMENT_CASES,
    LEARNERS,
    PAIRS,
    records_of,
    tuning_of,
)

SMALL = {"trials": 2, "horizon": 300, "arms": 20}


@pytest.mark.parametrize("case", ENVIRONMENT_CASES)
def test_learners_and_tunables_are_by_default_those_of_the_environment(case):
    given = ENVIRONMENT_CASES[case]
    prepared = prepare_source(Sweep(**SMALL, **given))
    names = [learner.name for learner in prepared.learners]
    usual = [name for name in DEFAULT_LEARNERS if name in ADAPTIVE_LEARNERS or not prepared.is_adaptive]
    assert names == [*usual, FROM_LOG]
    assert prepared.is_adaptive == (case in ADAPTIVE_CASES)
    values = given.get("tunables", ())
    assert prepared.environment_name == given["environment"] + (f":{','.join(values)}" if values else "")
    if prepared.is_adaptive:
        assert prepared.tunable_values.tolist() == list(tuning_of(case).values())


@pytest.mark.parametrize("where", BACKENDS)
def test_a_backend_is_taken_by_the_learners_that_it_has_a_loop_for(where):
    """But fixed arms are always counted natively."""
    for learner in prepare_source(Sweep(learners=LEARNERS, backend=where, **SMALL)).learners:
        taken = where == "native" if learner.is_fixed else (learner.name, where) in PAIRS
        assert (learner.backend_name == where) == taken


@pytest.mark.parametrize("name", ADAPTIVE)
def test_an_adaptive_environment_refuses_backends_that_cannot_simulate_it(name):
    for where in (None, *BACKENDS):
        sweep = Sweep(environment=name, learners=ADAPTIVE_LEARNERS, backend=where, **SMALL)
        if where in (None, *STEPWISE_BACKENDS):
            assert all(hasattr(learner.backend.make(9), "decide") for learner in prepare_source(sweep).learners)
        else:
            with pytest.raises(BadInput, match=f"backend: {where} found; .* it must be rows or dense"):
                prepare_source(sweep)


def test_a_user_learner_is_tried_with_the_feedback_that_it_will_get():
    fields = {"learners": ("experiments.impostors:coin",), "eta": 0.5} | SMALL
    prepare_source(Sweep(**fields, feedback_rate=0.5, delay=3, flips=(0.1, 0.1)))


@pytest.mark.parametrize("name", [name for name, x in ADAPTIVE.items() if x.tunables])
def test_the_bounds_of_every_tunable_can_be_given_and_nothing_beyond(name):
    for position, tunable in enumerate(ADAPTIVE[name].tunables):
        allowed = tunable.words or (tunable.low, tunable.high)
        for number, value in enumerate(allowed):
            sweep = Sweep(environment=name, tunables=(f"{tunable.name}={value}",), **SMALL)
            assert prepare_source(sweep).tunable_values[position] == (number if tunable.words else value)
        for value in (f"{tunable.low - 1}", f"{tunable.high + 1}"):
            with pytest.raises(BadInput, match=r"tunables: .* it must be "):
                prepare_source(Sweep(environment=name, tunables=(f"{tunable.name}={value}",), **SMALL))


@pytest.mark.parametrize(
    ("environment", "sizes", "rounds"),
    [
        ("stochastic", [500], 500),
        ("stochastic", [40_000], 30_000),
        ("replay", [40_000], 40_000),
        ("single-shift", [5998, 816], 1632),
        ("interactive", [500, 500], 30_000),
    ],
)
def test_the_default_horizon_is_that_of_the_help(environment, sizes, rounds):
    logs = [records_of(size) for size in sizes]
    assert prepare_source(Sweep(environment=environment, trials=2, learners="aci-rank"), logs).horizon == rounds


def test_the_memory_of_a_shard_is_that_of_its_trials():
    large = SMALL | {"learners": ("exaul",), "trials": 10**9}
    with pytest.raises(BadInput, match=r"^trials, arms, checkpoints: 1000000000, .* they need at least"):
        prepare_source(Sweep(**large))
    assert len(prepare_source(Sweep(**large, shard="1/500000000")).trials) == 2
