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

CLIENTS = 16


class Server:
    """A process of `exaul serve`."""

    def __init__(self, path):
        command = [sys.executable, "-m", "exaul", "serve", "--state", str(path), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("serving at http://127.0.0.1:"), line
        self.port = int(line.rsplit(":", 1)[1])

    def stop(self, number):
        self.process.send_signal(number)
        self.process.stdout.close()
        return self.process.wait()


class LoadClient(threading.Thread):
    """Decides, gives feedback and withdraws until the server is gone; keeps every reply."""

    def __init__(self, port, seed):
        super().__init__()
        self.port, self.rng = port, random.Random(seed)
        self.decided, self.outcomes, self.unanswered = {}, [], []

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            while True:
                self.use(connection)
        except (OSError, http.client.HTTPException):  # killed: the request may have been done or not
            connection.close()

    def use(self, connection):
        rng = self.rng
        body = {"score": rng.random() ** 0.1, "key": rng.choice("abc"), "id": f"{rng.getrandbits(64):x}"}
        self.unanswered.append(body)
        self.decided[body["id"]] = body, post(connection, "/v1/decide", body)
        self.unanswered.pop()
        known = rng.choice(list(self.decided))  # often not the last one
        error = rng.randrange(2)
        if rng.random() < 0.1:
            self.outcomes.append(("withdraw", known, post(connection, "/v1/withdraw", {"id": known})))
        else:
            reply = post(connection, "/v1/feedback", {"id": known, "error": error})
            self.outcomes.append((FEEDBACK, known, reply))


def post(connection, path, body):
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    assert reply.status == 200, text
    return json.loads(text)


@pytest.mark.slow
def test_killed_50_times_under_load(tmp_path, capsys):
    path, rng = tmp_path / "state", random.Random(5)
    decided, outcomes, unanswered = {}, [], []
    server = Server(path)
    for kill in range(50):
        clients = [LoadClient(server.port, f"{kill}-{n}") for n in range(CLIENTS)]
        for client in clients:
            client.start()
        decisions = rng.randrange(50, 150)  # whatever the load of the machine
        while sum(len(client.decided) for client in clients) < decisions:
            time.sleep(0.01)
            assert any(client.is_alive() for client in clients)
        if kill % 5 == 4:
            assert main(["journal", "verify", str(path)]) == 0  # while it runs
        server.stop(signal.SIGKILL)
        for client in clients:
            client.join()
            decided |= client.decided
            outcomes += client.outcomes
            unanswered += client.unanswered
        server = Server(path)
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        for body, reply in rng.sample(list(decided.values()), min(100, len(decided))):
            assert post(connection, "/v1/decide", body) == reply | {"repeated": True}
        for body in unanswered:  # what a client does that got no reply
            assert post(connection, "/v1/decide", body)["id"] == body["id"]
        connection.close()
    assert server.stop(signal.SIGTERM) == 0
    assert len(decided) >= 50 * 50

    capsys.readouterr()
    assert main(["journal", "verify", str(path)]) == 0
    assert "same" in capsys.readouterr().out
    with read_journal(path) as journal:
        entries = list(journal.entries())
    given = {entry.id: entry for entry in entries if entry.kind == DECIDE}
    assert len(given) == sum(entry.kind == DECIDE for entry in entries)
    for id, (body, reply) in decided.items():
        entry = given[id]
        assert (entry.score, entry.key) == (body["score"], body["key"])
        assert (entry.answered, entry.probability) == (reply["answer"], reply["probability"])
    assert {body["id"] for body in unanswered} <= given.keys()
    kept = {
        (kind, id) for kind, id, reply in outcomes if reply["reason"] == "withheld"
    }  # verdicts for later starts
    journaled = [(entry.kind, entry.id) for entry in entries if entry.kind not in (DECIDE, VERDICT) and entry.id]
    verdicts = {(FEEDBACK, entry.id) for entry in entries if entry.kind == VERDICT}
    assert {pair for pair in kept if pair[0] == FEEDBACK} <= verdicts
    assert len(set(journaled)) == len(journaled)
    accepted = {(kind, id) for kind, id, reply in outcomes if reply["accepted"]}
    assert accepted <= set(journaled)
    counted = [id for kind, id, reply in outcomes if kind == FEEDBACK and reply["reason"] == "counted"]
    assert len(set(counted)) == len(counted) > 20
    assert len(set(journaled) - accepted) <= 50 * CLIENTS  # those whose reply a kill has cut off
