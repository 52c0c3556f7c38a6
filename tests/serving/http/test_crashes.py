"""`exaul serve` is killed under load: what it said is still so, and nothing is counted twice."""

import http.client
import json
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from exaul.commands.main import main
from exaul.serving.entries import DECIDE, FEEDBACK, VERDICT
from exaul.serving.journal import read_journal
from tests.processes import output_of

KILLS, CLIENTS = 50, 16


def started(path):
    """A process of `exaul serve`, and its port."""
    command = [sys.executable, "-m", "exaul", "serve", "--state", str(path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process.stdout:
        line = process.stdout.readline()
    assert line.startswith("serving with alpha = 0.1, audit = none at http://127.0.0.1:"), line
    return process, int(line.rsplit(":", 1)[1])


class LoadClient(threading.Thread):
    """Decides, gives feedback and withdraws until the server is gone; keeps every reply."""

    def __init__(self, port, seed):
        super().__init__()
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self.rng, self.decided, self.outcomes, self.unanswered = random.Random(seed), {}, [], []

    def run(self):
        try:
            while True:
                self.use()
        except (OSError, http.client.HTTPException):  # killed: the request may have been done or not
            self.connection.close()

    def use(self):
        rng = self.rng
        body = {"score": rng.random() ** 0.1, "key": rng.choice("abc"), "id": f"{rng.getrandbits(64):x}"}
        self.unanswered.append(body)
        self.decided[body["id"]] = body, post(self.connection, "decide", body)
        self.unanswered.pop()
        known = {"id": rng.choice(list(self.decided))}  # often not the last one
        kind, more = ("withdraw", {}) if rng.random() < 0.1 else (FEEDBACK, {"error": rng.randrange(2)})
        self.outcomes.append((kind, known["id"], post(self.connection, kind, known | more)))


def post(connection, path, body):
    connection.request("POST", f"/v1/{path}", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    assert reply.status == 200, text
    return json.loads(text)


@pytest.mark.slow
def test_killed_50_times_under_load(tmp_path, capsys):
    path, rng = tmp_path / "state", random.Random(5)
    decided, outcomes, unanswered = {}, [], []
    server, port = started(path)
    for kill in range(KILLS):
        clients = [LoadClient(port, f"{kill}-{n}") for n in range(CLIENTS)]
        for client in clients:
            client.start()
        decisions = rng.randrange(50, 150)  # whatever the load of the machine
        while sum(len(client.decided) for client in clients) < decisions:
            time.sleep(0.01)
            assert any(client.is_alive() for client in clients)
        if kill % 5 == 4:
            assert main(["journal", "verify", str(path)]) == 0  # while it runs
        server.kill()
        server.wait()
        for client in clients:
            client.join()
            decided |= client.decided
            outcomes += client.outcomes
            unanswered += client.unanswered
        server, port = started(path)
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for body, reply in rng.sample(list(decided.values()), min(100, len(decided))):
            assert post(connection, "decide", body) == reply | {"repeated": True}
        for body in unanswered:  # what a client does that got no reply
            assert post(connection, "decide", body)["id"] == body["id"]
        connection.close()
    server.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert len(decided) >= 50 * KILLS

    capsys.readouterr()
    assert "same" in output_of(["journal", "verify", str(path)], capsys)
    with read_journal(path) as journal:
        entries = list(journal.entries())
    given = {entry.id: entry for entry in entries if entry.kind == DECIDE}
    assert len(given) == sum(entry.kind == DECIDE for entry in entries)
    for id, (body, reply) in decided.items():
        entry = given[id]
        assert (entry.score, entry.key) == (body["score"], body["key"])
        assert (entry.answered, entry.probability) == (reply["answer"], reply["probability"])
    assert {body["id"] for body in unanswered} <= given.keys()
    said = {reason: [] for reason in ("counted", "withdrawn", "withheld")}
    for kind, id, reply in outcomes:
        said.setdefault(reply["reason"], []).append((kind, id))
    # verdicts on withheld answers, for later starts
    verdicts = {(FEEDBACK, entry.id) for entry in entries if entry.kind == VERDICT}
    assert {pair for pair in said["withheld"] if pair[0] == FEEDBACK} <= verdicts
    journaled = [(entry.kind, entry.id) for entry in entries if entry.kind not in (DECIDE, VERDICT) and entry.id]
    assert len(set(journaled)) == len(journaled)
    accepted = {(kind, id) for kind, id, reply in outcomes if reply["accepted"]}
    assert accepted <= set(journaled)
    assert len(set(said["counted"])) == len(said["counted"]) > 20
    assert len(set(journaled) - accepted) <= KILLS * CLIENTS  # those whose reply a kill has cut off
