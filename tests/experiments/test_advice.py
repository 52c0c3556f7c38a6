"""The measurement of the advice: which cells count, and that shares follow from them."""

import numpy as np
import pytest

from exaul.engine.logs.files import Table
from experiments import advice
from experiments.paper import Paper
from experiments.run import Runner
from tests.experiments.scale import small_scale


def tables(fdr, answered, answerable=0.5, advised=1, records=2_000):
    """The tables of one trace with these results on its second half; the threshold has an FDR of 0."""
    spread = {"answered_in_order": answered, "fdr_in_order": fdr, "records": records, "answerable": answerable}
    alike = {"source": "a", "alpha": 0.1, "learner": advice.ACI_RANK, "advised": 0} | spread
    threshold = {"learner": advice.THRESHOLD, "fdr_in_order": 0.0, "answered_in_order": 0.2}
    rows = [alike, alike | threshold, alike | {"source": "a, first half", "advised": advised}]
    trials = [{"source": x, "alpha": 0.1, "answered": 4, "horizon": 10, "fdr": 0.1} for x in ("a", "a, first half")]
    return {"trials": Table(trials), "advice": Table(rows)}


def shares(**more):
    """The shares over one trace on which the learner answers half, at twice alpha."""
    return advice.share_table(advice.way_table(tables(0.2, 0.5, **more)))


@pytest.mark.parametrize(
    ("fdr", "answered", "holds", "safe"),
    [(0.11, 0.5, 1, 1.0), (0.1101, 0.5, 0, 0.0), (0.05, 0.25, 1, 0.5), (0.05, 0.9, 1, 1.0), (np.nan, 0.0, 1, 0.0)],
)
def test_a_way_holds_alpha_up_to_a_hundredth_and_silence_is_safe_but_answers_nothing(fdr, answered, holds, safe):
    rows = advice.way_table(tables(fdr, answered)).set_index("learner")
    assert rows.loc[advice.WARM, ["holds", "safe"]].tolist() == [holds, pytest.approx(safe)]
    assert rows.loc[advice.COLD, "fdr"] == 0.1
    assert rows.loc[advice.THRESHOLD, "safe"] == pytest.approx(0.4)


def test_shares_count_the_cells_that_a_threshold_can_answer_and_those_that_were_advised():
    share, unadvised = (table.set_index("learner") for table in (shares(), shares(advised=0)))
    assert share.loc[advice.WARM, ["cells", "advised", "holds_if_advised"]].tolist() == [1, 1, 0]
    assert share.loc[advice.THRESHOLD, "holds_if_advised"] == 1
    assert np.isnan(unadvised.loc[advice.WARM, "holds_if_advised"])
    assert shares(answerable=0.04).empty
    assert set(shares(records=400)["case"]) == {advice.KINDS[False]}


def test_the_experiment_plays_each_trace_and_its_first_half(monkeypatch):
    records = Paper.load
    monkeypatch.setattr(Paper, "load", lambda paper: [x.take(np.arange(4_000)) for x in records(paper)])
    with small_scale(300):
        played = Runner(Paper()).tables("advice")
    assert set(played["trials"]["source"]) == {
        f"{name}{part}" for name in ("triviaqa-like", "nq-like") for part in ("", advice.FIRST_HALF)
    }
    assert len(advice.way_table(played)) == 2 * 3 * 3
    assert list(advice.advice.judge(played)["claim"]) == [advice.LEMMA]
    monkeypatch.setattr(advice, "MIN_CELLS", 1)
    assert len(advice.advice.judge(played)) == 3
    assert set(advice.advice.figures(played | advice.advice.derive(played))) == {"rights"}
