"""`exaul serve`: what ends it with one line, and how it ends."""

import os
import re
import shlex
import shutil
import signal
import socket
from datetime import UTC, datetime, timedelta
from subprocess import PIPE

import pytest
from starlette.testclient import TestClient

from exaul import Abstainers
from exaul.commands import serve
from exaul.commands.main import main
from exaul.serving.http.server import BoundedServer
from exaul.serving.http.settings import ServeFlags
from tests.processes import EXAUL, refusal_of, serving, variables
from tests.serving.http.apps import asked, until

SERVE = *EXAUL, "serve", "--state", "s", "--port", "0"
LOG = "score,correct\n" + "0.9,1\n0.2,0\n" * 50


@pytest.fixture
def folder(tmp_path, in_folder):
    return tmp_path


BAD = {
    "": "exaul: --state: missing; FILE keeps all decisions, such as state.sqlite",
    "--state s --host 0.0.0.0": "without --tokens it must be a loopback address",
    "--state s --host localhost.example.org": "loopback",
    "--state s --port 65536": "port: 65536",
    "--state s --on-error shrug": "--on-error: 'shrug'",
    "--state s --learner exaul": "horizon: missing",
    "--state s --tokens missing": "missing: cannot be read",
    "--state s --tokens env:NONE": "NONE is not set",
    "--state no/such/folder/s": "no/such/folder/s: its folder is missing; make it first",
    "--state .": "is not a file",
    "--state s --warm-start none.csv": "none.csv: no such file",
    "--state s --keys none.toml": "none.toml: cannot be read",
    "--state s --keys other": "other: cannot be read",
    "--state s --keys flat.toml": "flat.toml: 'billing': 3 found; it must be a table: [NAME]",
    "--state s --keys unknown.toml": "'beta' is unknown; one of alpha, warm_start",
    "--state s --keys five.toml": "--keys: 'billing': alpha: 5.0 found; it must be in (0, 1)",
    "--state s --warm-start log.csv --log-score msp": "; did you mean score_msp?",
    "--state s --warm-start log.csv": "; name its column of scores with --log-score COL; did you mean score_msp?",
    "--state s --warm-start both.csv": "; name its label column with --log-error COL or --log-correct COL, or u",
    "--state s --score confidence --upstream http://u": "https://…; --log-score names a column of the log",
    "--state s --score score_msp": "gateway flags need it; --log-score names a column",
    "--state s --texts some": "texts: 'some' is unknown",
    "--state s --retain-days -1": "--retain-days: -1",
    "--state other": "not a database",
}


@pytest.mark.parametrize("flags", BAD)
def test_bad_flags_are_one_line(folder, capsys, flags):
    (folder / "other").write_text("x" * 5000)
    (folder / "flat.toml").write_text("billing = 3")
    (folder / "unknown.toml").write_text("[billing]\nbeta = 0.1")
    (folder / "five.toml").write_text("[billing]\nalpha = 5")
    (folder / "log.csv").write_text("row,score_msp,correct\n1,0.9,1\n")
    (folder / "both.csv").write_text("score,error,correct\n0.9,0,1\n")
    assert BAD[flags] in refusal_of(["serve", *flags.split()], capsys)
    assert not (folder / "s").exists() or (folder / "s").stat().st_size == 0  # a lock, and nothing written


def test_loopback_alone_needs_no_tokens():
    for host in ("127.0.0.1", "127.9.9.9", "localhost", "::1"):
        assert ServeFlags(state="s", host=host).tokens is None
    assert ServeFlags(state="s", host="0.0.0.0", tokens="env:TOKENS")


def test_a_missing_package_or_a_port_in_use_is_one_line_and_leaves_no_file(folder, capsys, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        argv = ["serve", "--state", "s", "--port", str(other.getsockname()[1])]
        assert "is in use" in refusal_of(argv, capsys)
    monkeypatch.setattr("exaul.engine.checks.find_spec", lambda name: None if name == "uvicorn" else name)
    assert "uvicorn: not installed; the service needs: uv run --extra serve" in refusal_of(argv, capsys)
    assert list(folder.iterdir()) == []


def test_it_serves_until_a_signal_and_reads_the_tokens_again_on_another(folder):
    """It writes no secret."""
    tokens, old, new = folder / "tokens", "old-0123456789abcdef", "new-0123456789abcdef"
    tokens.touch(0o600)
    tokens.write_text(f"decide,read {old}\n")
    command, elsewhere = [*SERVE, "--tokens", "tokens", "--shadow"], variables(TZ="Asia/Tokyo")
    with serving(command, env=elsewhere, stderr=PIPE) as (running, address):
        port = int(address.rpartition(":")[2])

        def status_of(token, *request):
            headers = {"Authorization": f"Bearer {token}"}
            status, _, raw = asked(port, *(request or ("GET", "/v1/keys", None)), headers)
            assert "0123456789" not in raw
            return status

        decision = "POST", "/v1/decide", '{"score": 1, "id": "x"}'
        for request in (), decision:
            assert [status_of(token, *request) for token in (old, new)] == [200, 401]
        metrics = asked(port, "GET", "/metrics", None, {"Authorization": f"Bearer {old}"})[2]
        assert "exaul_questions_total" in metrics
        assert "_created" not in metrics  # half of all series, of no use
        tokens.write_text(f"read {new}\n")
        running.send_signal(signal.SIGHUP)
        until(lambda: status_of(new) == 200)
        assert status_of(old) == 401
        tokens.write_text(f"write {old}\n")
        running.send_signal(signal.SIGHUP)
        line = [running.stderr.readline() for _ in range(4)][-1]  # a new file, shadow mode, first tokens, and these
        said = r"exaul: (\S+ \S+Z) \[-\] the tokens stay as they were: tokens, line 1: the scopes"
        written = datetime.fromisoformat(re.match(said, line)[1])
        assert abs(datetime.now(UTC) - written) < timedelta(hours=1)
        assert status_of(new) == 200
        running.send_signal(signal.SIGINT)
        last = "".join(running.communicate(timeout=10))  # some .5 s: nothing is waited for
        assert re.fullmatch(r"exaul: .* \[-\] stopped: all confirmed decisions and ratings are in s\n", last)
    assert not os.path.exists("s-wal")  # the file was closed
    with Abstainers("s") as abstainers:
        assert abstainers.figures()["shadow_answers"] == 1


@pytest.fixture
def begun(folder, capsys, caplog, monkeypatch):
    """Start the service without a port: what it prints, and whether it answers some questions."""

    def begin(*flags, questions=()):
        answers = []
        caplog.clear()

        def run(self, sockets):
            assert not self.config.app.state.service._loaded  # to start restores no key
            client = TestClient(self.config.app, base_url="http://127.0.0.1")
            answers.extend(client.post("/v1/decide", json=body).json()["answer"] for body in questions)
            self._on_started()

        monkeypatch.setattr(BoundedServer, "run", run)
        assert main(["serve", "--state", "s", "--port", "0", *flags]) == serve.STARTUP_FAILURE  # it accepts nothing
        begin.serving = capsys.readouterr().out.partition(" at http://127.0.0.1:")[0]
        messages = [x for x in caplog.messages if not x.startswith("--audit without --tokens: any thumb")]
        assert len(caplog.messages) - len(messages) == ("audit = 0.5" in begin.serving)
        begin.past, *lines = messages
        return lines, answers

    return begin


def test_keys_start_from_their_logs_and_shadow_mode_shows_everything(folder, begun):
    """The flags of the service reach its Abstainers."""
    (folder / "log.csv").write_text(LOG)
    (folder / "other.csv").write_text("score,correct\n" + "0.9,0\n0.2,0\n" * 50)
    (folder / "keys.toml").write_text('[billing]\nalpha = 0.2\nwarm_start = "other.csv"\n')
    questions = [{"score": 0.95}, {"score": 0.1}, {"score": 0.95, "key": "billing"}]
    said, answers = begun("--warm-start", "log.csv", "--keys", "keys.toml", "--audit", "0.5", questions=questions)
    assert [line.partition(" (")[0] for line in said] == [
        "new keys: aci-rank starts by answering 50.0% at alpha = 0.1",
        "key 'billing': aci-rank starts by answering nothing at alpha = 0.2, which no threshold of the log reaches",
    ]
    assert begun.past == "s: 0 entries, keys: 0"
    assert answers == [True, False, False]
    assert begun("--warm-start", "log.csv", "--shadow", questions=questions) == (
        [serve.SHADOW_MODE],
        [True] * 3,
    )
    (folder / "keys.toml").write_text('[billing]\nalpha = 0.3\nwarm_start = "other.csv"\n')
    of_billing, of_default = begun("--keys", "keys.toml")[0]
    assert of_default.endswith(" wrong); answered since then: 50.0% of 2")
    assert "; answered since then: 0.0% of 1; --warm-start and --keys are for new keys, and change" in of_billing
    assert of_billing.endswith(" journal start s --key billing --alpha 0.3 --warm-start other.csv")
    with Abstainers("s") as abstainers:
        assert abstainers.figures("billing")["aim"] == 0.2
    assert begun.serving == "serving with alpha = 0.1 for new keys, audit = 0.5"


def test_a_file_says_its_size_and_a_key_gets_another_alpha(folder, begun, capsys):
    assert begun("--shadow") == ([serve.SHADOW_MODE], [])
    assert begun.serving == "serving with alpha = 0.1, audit = none"
    with Abstainers("s") as abstainers:
        for _ in range(20):
            abstainers.feedback(abstainers.show(0.5).id, "up")
    assert begun("--shadow") == ([serve.SHADOW_MODE], [])
    assert begun.past == "s: 40 entries, keys: 1"
    (folder / "log.csv").write_text(LOG)
    refusal = refusal_of(["serve", "--state", "s", "--port", "0", "--alpha", "0.2"], capsys)
    assert "alpha: 0.2 found; s was begun with 0.1, which stays; another takes a new file or, for " in refusal
    assert refusal.endswith(" journal start s --key '' --alpha 0.2 --warm-start LOG\n")
    (folder / "msp.csv").write_text(LOG.replace("score", "score_msp"))
    of_log = ["--warm-start", "msp.csv", "--log-score", "score_msp"]
    refusal = refusal_of(["serve", "--state", "s", "--port", "0", "--alpha", "0.2", *of_log], capsys)
    command = "journal start s --key '' --alpha 0.2 --warm-start msp.csv --score score_msp"
    assert refusal.endswith(f" {command}\n")
    shutil.copy("s", "copy")
    assert main(shlex.split(command.replace(" s ", " copy "))) == 0  # as it is printed
    assert "(msp: 100 rows, 50.0% wrong)" in capsys.readouterr().out
    refusal = refusal_of(["serve", "--state", "s", "--port", "0", "--audit", "0.2"], capsys)
    assert refusal.endswith("audit: 0.2 found; s was begun with none, which stays; another takes a new file\n")
    assert main(["journal", "start", "s", "--key", "", "--alpha", "0.2", "--warm-start", "key:"]) == 0
    said = "aci-rank starts by answering 100.0% at alpha = 0.2 (answers of key '': 20 rows, 0.0% wrong)"
    assert capsys.readouterr().out == f"key '' begins anew: {said}\n"
    for flags in ((), ("--warm-start", "log.csv")):  # a start from the key's own answers is no mistake
        assert begun(*flags) == ([f"key '': {said}; no questions since then"], [])
    assert begun.serving == "serving with alpha = 0.1 for new keys, audit = none"


def test_a_start_without_a_log_is_warned_of(folder, begun):
    warning = "new keys: without a log, most answers are withheld at first; --warm-start LOG"
    for line in (warning, "key '': without a log at alpha = 0.1; answered since then: 0.0% of 1"):
        (said,), _ = begun()
        assert said.startswith(line)
        with Abstainers("s") as abstainers:
            abstainers.decide(0.5)
    (folder / "log.csv").write_text(LOG)
    for log, warned in (("log.csv", True), ("log.csv", False), ("log.csv:score=0.9", True)):
        said, _ = begun("--warm-start", log)
        assert any("--warm-start and --keys are for new keys" in line for line in said) == warned
        assert any(line.endswith(f" --alpha 0.1 --warm-start {log}") for line in said) == warned
        with Abstainers("s") as abstainers:
            abstainers.begin("", warm_start="log.csv")
