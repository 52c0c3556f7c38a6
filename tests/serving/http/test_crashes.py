"""`exaul serve` is killed under load: what it said is still so, and nothing is counted twice."""

import http.client
import json
import random
import subprocess
import sys
import threading

import pytest

from exaul.commands.main import main
from exaul.serving.entries import DECIDE, FEEDBACK, UNLEARNED, WITHDRAW
from exaul.serving.journal import read_journal
from tests.serving.http.apps import until

KILLS, CLIENTS = 50, 16


def started(path):
    """A process of `exaul serve`, and its port."""
    command = [sys.executable, "-m", "exaul", "serve", "--state", str(path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process.stdout:
        return process, int(process.stdout.readline().rsplit(":", 1)[1])


def post(connection, path, body):
    connection.request("POST", f"/v1/{path}", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    assert reply.status == 200, text
    return json.loads(text)


def use(port, rng, sent, decided, outcomes):
    """Decide, give feedback and withdraw until the server is gone; keep every reply."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        while True:
            body = {"score": rng.random() ** 0.1, "key": rng.choice("abc"), "id": f"{rng.getrandbits(64):x}"}
            sent[body["id"]] = body
            decided[body["id"]] = post(connection, "decide", body)
            kind, more = (WITHDRAW, {}) if rng.random() < 0.1 else (FEEDBACK, {"error": rng.randrange(2)})
            id = rng.choice(list(decided))  # often not the last one
            outcomes.append((kind, id, post(connection, kind, {"id": id} | more)["reason"]))
    except (OSError, http.client.HTTPException):  # killed: the request may have been done or not
        connection.close()


@pytest.mark.slow
def test_killed_50_times_under_load(tmp_path):
    path, sent, decided, outcomes = tmp_path / "state", {}, {}, []
    server, port = started(path)
    for kill in range(KILLS):
        before, rngs = len(decided), [random.Random(f"{kill}-{n}") for n in range(CLIENTS)]
        clients = [threading.Thread(target=use, args=(port, rng, sent, decided, outcomes)) for rng in rngs]
        for client in clients:
            client.start()
        until(lambda before=before: len(decided) > before + 100, 60)
        if kill % 5 == 4:
            assert main(["journal", "verify", str(path)]) == 0  # while it runs
        server.kill()
        server.wait()
        for client in clients:
            client.join()
        server, port = started(path)
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for id in random.Random(kill).sample([*decided], 100) + [id for id in sent if id not in decided]:
            reply = post(connection, "decide", sent[id])  # what a client does that got no reply, too
            assert decided.setdefault(id, reply | {"repeated": False}) | {"repeated": reply["repeated"]} == reply
        connection.close()
    server.terminate()
    assert server.wait() == 0

    assert main(["journal", "verify", str(path)]) == 0
    with read_journal(path) as journal:
        entries = list(journal.entries())
    given = {entry.id: (entry.answered, entry.probability) for entry in entries if entry.kind == DECIDE}
    assert given == {id: (reply["answer"], reply["probability"]) for id, reply in decided.items()}
    kinds = {"counted": FEEDBACK, "withdrawn": WITHDRAW, "withheld": UNLEARNED}
    learned = [(entry.kind, entry.id) for entry in entries if entry.kind in kinds.values()]
    said = {(kinds[reason], id) for _, id, reason in outcomes if reason in kinds}
    said -= {(UNLEARNED, id) for kind, id, _ in outcomes if kind == WITHDRAW}  # which leaves no entry
    counted = [id for _, id, reason in outcomes if reason == "counted"]
    assert len(learned) == len(set(learned))
    assert len(counted) == len(set(counted)) > 20
    assert said <= set(learned)
    assert len(set(learned) - said) <= KILLS * CLIENTS  # those whose reply a kill has cut off
