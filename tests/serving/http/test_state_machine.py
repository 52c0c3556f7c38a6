"""The API against a model in plain Python: a dictionary of decisions, and Abstainers with the same seed."""

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from starlette.testclient import TestClient

from exaul import Abstainers
from exaul.serving.http.application import app
from exaul.serving.replay import replayed

CONFIGURATION = {"learner": "aci-rank", "expires": 2, "seed": 3}
keys = st.just("") | st.sampled_from(["", "a", "a/b", "%2F", "é", "e\u0301", "k" * 256])
scores = st.just(1.0) | st.floats(0, 1) | st.integers(0, 1)
ratings = st.sampled_from([{"error": 0}, {"error": True}, {"error": 0.25}, {"thumb": "up"}, {"thumb": "down"}])
new_ids = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=256)


class ServiceMachine(RuleBasedStateMachine):
    """Requests in any order, with restarts of the service, which the model does not have."""

    configuration = CONFIGURATION
    ids = Bundle("ids")

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.twin = Abstainers(Path(self.folder.name) / "twin", **self.configuration)
        self.decisions, self.closed, self.clock = {}, {}, {}
        self.start()

    def start(self):
        self.client = TestClient(app(Path(self.folder.name) / "state", **self.configuration))
        self.client.__enter__()

    def post(self, path, body, status=200):
        reply = self.client.post(path, json=body)
        assert reply.status_code == status, reply.text
        return reply.json()

    @rule(target=ids, score=scores, key=keys, id=new_ids | new_ids | ids)
    def decide(self, score, key, id):
        body = {"score": score} | ({"key": key} if key else {}) | ({"id": id} if id is not None else {})
        if id in self.decisions:
            if self.decisions[id][:2] == (score, key):
                assert self.post("/v1/decide", body) == self.decisions[id][2] | {"repeated": True}
            else:
                assert self.post("/v1/decide", body, 409)["error"]["param"] == "id"
            return id
        reply = self.post("/v1/decide", body)
        assert id in (None, reply["id"])
        assert reply["id"] not in self.decisions
        expected = self.twin.decide(score, key, reply["id"])
        assert reply == expected._asdict() | {"repeated": False, "error": None}
        self.clock[key] = self.clock.get(key, 0) + 1
        self.decisions[reply["id"]] = score, key, reply, self.clock[key]
        return reply["id"]

    @rule(score=scores, key=keys, more=st.integers(1, 4))
    def decide_often(self, score, key, more):
        """Earlier answers of the key expire."""
        for _ in range(more):
            self.decide(score, key, None)

    @rule(id=ids)
    def decide_again(self, id):
        self.decide(*self.decisions[id][:2], id)

    def outcome(self, id, rating):
        """What feedback (or, without a rating, a withdrawal) must return; changes the model."""
        if id not in self.decisions:
            return "unknown"
        _, key, reply, time = self.decisions[id]
        state = self.closed.get(id)
        if not reply["answer"]:
            return "withheld"
        if state == "withdrawn":
            return "withdrawn"
        if rating is None:
            self.closed[id] = "withdrawn"
            return "withdrawn"
        if self.configuration.get("audit") is not None and not reply["audit"]:
            return "unaudited"
        if state == "rated":
            return "repeated"
        # the age counts the questions before this one, which are one more when the next is asked
        if self.clock[key] - time + 1 > self.configuration["expires"]:
            self.closed[id] = "rated" if reply["audit"] else None  # the late verdict of an audit is kept
            return "late"
        self.closed[id] = "rated"
        return "counted"

    def expected(self, id, rating):
        outcome = self.outcome(id, rating)
        error = rating and float(rating["error"] if "error" in rating else rating["thumb"] == "down")
        assert outcome == (self.twin.withdraw(id) if rating is None else self.twin.feedback(id, error))
        accepted = outcome == ("withdrawn" if rating is None else "counted")
        return {"accepted": accepted, "reason": outcome}

    @rule(id=ids | st.just("never"), rating=ratings)
    def feedback(self, id, rating):
        assert self.post("/v1/feedback", {"id": id} | rating) == self.expected(id, rating)

    @rule(items=st.lists(st.tuples(ids, ratings), max_size=5))
    def feedbacks(self, items):
        replies = self.post("/v1/feedback", [{"id": id} | rating for id, rating in items])
        assert replies == [self.expected(id, rating) for id, rating in items]

    @rule(id=ids | st.just("never"), often=st.booleans())
    def withdraw(self, id, often):
        if not often:  # so that feedback comes first
            assert self.post("/v1/withdraw", {"id": id}) == self.expected(id, None)

    @rule(often=st.integers(0, 4))
    def restart(self, often):
        if often:  # it takes longer than all else
            return
        self.client.__exit__(None, None, None)
        self.start()

    @invariant()
    def all_keys_are_listed(self):
        listed = self.client.get("/v1/keys").json()
        assert listed["total"] == len(self.clock)
        assert [each["key"] for each in listed["keys"]] == self.twin.all_keys()
        assert {each["key"]: each["questions"] for each in listed["keys"]} == self.clock

    def teardown(self):
        for each in self.client.get("/v1/keys").json()["keys"]:
            figures = self.twin.figures(each.pop("key"))
            assert each == {name: value if math.isfinite(value) else None for name, value in figures.items()}
        self.client.__exit__(None, None, None)
        # calls that have no entry, such as late feedback, have changed nothing that follows
        assert all(same for _, same in replayed(Path(self.folder.name) / "state"))
        self.twin.close()
        self.folder.cleanup()


class AuditedMachine(ServiceMachine):
    """The same with audits: only feedback on audited answers counts."""

    configuration = CONFIGURATION | {"audit": 0.5}


@pytest.mark.parametrize("machine", [ServiceMachine, AuditedMachine])
@pytest.mark.parametrize("examples", [3, pytest.param(150, marks=pytest.mark.slow)])
def test_the_api_does_what_the_model_does(machine, examples):
    limits = settings(max_examples=examples, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(machine, settings=limits)
