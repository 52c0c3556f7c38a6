"""What docs/operations.md says of scopes, limits, metrics and backups, and reference/http.md of routes, is so."""

import json
import math
import re
import shlex
import subprocess
import sys

import yaml

from exaul import Abstainers
from exaul.commands.main import main
from exaul.serving.http import guard, server, upstream
from exaul.serving.http.settings import SCOPES
from tests.models.stub import completion
from tests.processes import EXAUL, ROOT, serving, variables
from tests.serving.http.apps import asked, blocks
from tests.test_budgets import files

PAGE, HTTP_PAGE = (
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("operations.md", "reference/http.md")
)


def column(header):
    """The first column of the table with this header."""
    table = re.search(rf"^\| {header} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)[1]
    return [re.split(r" \| ", row.strip("| "))[0] for row in table.splitlines()]


def test_scopes():
    assert {name.strip("`") for name in column("Scope")} == set(SCOPES)
    tokens = [line.split() for line in blocks(PAGE, "Tokens", "text")[0].splitlines() if not line.startswith("#")]
    assert {scope for names, *_ in tokens for scope in names.split(",")} <= set(SCOPES)


def test_limits():
    for part in (
        f"| {server.HEAD_BYTES // 1024} KiB, or somewhat more in one piece; {server.HEAD_SECONDS} s |",
        f"| {guard.BODY_BYTES // 2**20} MiB, {guard.BODY_SECONDS:g} s |",
        f"| {server.CONNECTIONS}; requests on as many further ones",
        f"| {upstream.MOST_CALLS} |",
        f"(SIGTERM) | {server.SHUTDOWN_SECONDS} s |",
    ):
        assert part in PAGE


def test_metrics(opened):
    with opened(audit=0.5) as client:
        exported = re.findall(r"^# TYPE (\w+)", client.get("/metrics").text, re.MULTILINE)
    named = {name for cell in column("Metric") for name in re.findall(r"`(\w+)`", cell)}
    assert named == {name for name in exported if not name.endswith("_created")}  # exaul serve has none


def test_a_backup_is_a_journal_of_the_service(opened, tmp_path):
    (script,) = blocks(PAGE, "Backup", "bash")
    places = {"/opt/exaul/bin/python": sys.executable, "/opt/exaul/bin/exaul": shlex.join(EXAUL)}
    for place, here in (places | {"/var/lib/exaul": tmp_path, "/var/backups/exaul": tmp_path / "copies"}).items():
        assert place in script
        script = script.replace(place, str(here))
    (tmp_path / "copies").mkdir()
    with opened("state.sqlite", learner="aci-rank", audit=0.5) as client:
        ids = [client.post("/v1/decide", json={"score": 0.5}).json()["id"] for _ in range(50)]
        done = subprocess.run(["sh", "-c", script], env=variables(), capture_output=True, text=True, check=True)
        assert "same decisions: yes" in done.stdout
        assert client.post("/v1/decide", json={"score": 0.5}).status_code == 200
    journal, texts = sorted((tmp_path / "copies").iterdir())
    assert texts.name == f"{journal.name}.texts"
    assert {path.stat().st_mode & 0o077 for path in (journal, texts)} == {0}
    with Abstainers(journal) as abstainers:
        assert [abstainers.entries_of(id)[0].id for id in ids] == ids
        assert abstainers.figures()["questions"] == len(ids)


def test_a_service_that_is_killed_goes_on_where_it_was_and_ends_on_sigterm(tmp_path):
    """``serving`` sends SIGTERM, and looks at the status. The file can be verified while it is in use."""
    state = str(tmp_path / "state")
    command = [*EXAUL, "serve", "--state", state, "--port", "0"]

    def decided(address):
        raw = asked(int(address.rpartition(":")[2]), "POST", "/v1/decide", '{"score": 1, "id": "a"}')[2]
        assert main(["journal", "verify", state]) == 0
        return json.loads(raw)

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            first = decided(running.stdout.readline().strip())
        finally:
            running.kill()
    with serving(command) as (_, address):
        assert decided(address) == first | {"repeated": True}


def shape(value):
    """The names of a value in JSON in their order, and what is null; not its texts and numbers."""
    if isinstance(value, dict):
        return [(name, shape(each)) for name, each in value.items()]
    if isinstance(value, list):
        return [shape(each) for each in value]
    return None if value is None else isinstance(value, bool)


def test_routes(gate, stub):
    """Each route is in the table, and each request of the page gets a reply with the names of that below it."""
    stub.rule = lambda asked, before: completion("Paris.", [math.log(0.97)])
    table = HTTP_PAGE.partition("\n\nA request")[0]
    with gate(learner="aci-rank", audit=1.0, warm_start=ROOT / "examples" / "log.csv") as client:
        paths = json.loads(client.ask(b"", "/openapi.json", "GET")[2])["paths"]
        described = {re.sub(r"{(\w+).*?}", lambda found: found[1].upper(), path) for path in paths}
        assert set(re.findall(r"`(?:GET |POST )?(/\S*)`", table)) == described | {"/", "/openapi.json"}
        shown = re.findall(r"^```sh\n(.*?)```\n\n```json\n(.*?)```", HTTP_PAGE, re.DOTALL | re.MULTILINE)
        assert len(shown) == 12
        for command, text in shown:
            words = shlex.split(command)
            body, method = (words[-1].encode(), "POST") if "-d" in words else (b"", "GET")
            sent = client.ask(body, words[2].removeprefix("http://127.0.0.1:8321"), method)
            reply, expected = json.loads(sent[2]), json.loads(text)
            if "latest" in expected:  # which the page shows with other routes
                expected |= {name: reply[name] for name in ("keys", "latest")}
            assert shape(reply) == shape(expected), command
            assert reply == expected or not re.search("accepted|status|param", text)


def test_the_messages_of_symptoms_are_printed():
    source = "".join(path.read_text(encoding="utf-8") for path in files("exaul"))
    messages = re.findall("`(.*?)`", " ".join(column("You see")))
    assert [message for message in messages if message in source] == messages != []


def test_each_start_has_audits():
    starts = re.findall(r"^(?:ExecStart=.*\n.*|CMD .*| +args: .*)$", PAGE, re.MULTILINE)
    assert [re.sub(r"\W+", " ", start).count("audit 0 02") for start in starts] == [1, 1, 1]


def test_one_process_at_a_time_in_kubernetes(opened):
    manifests = map(yaml.safe_load, blocks(PAGE, "Kubernetes", "yaml"))
    deployment, claim, service = (manifest["spec"] | manifest["metadata"] for manifest in manifests)
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["template"]["spec"]
    assert service["selector"] == deployment["selector"]["matchLabels"]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": claim["name"]}
    secrets = re.findall(r"secret generic ([\w-]+)", PAGE)
    (environment,) = pod["containers"][0]["envFrom"]
    assert [pod["volumes"][1]["secret"]["secretName"], environment["secretRef"]["name"]] == secrets
    assert pod["terminationGracePeriodSeconds"] > server.SHUTDOWN_SECONDS
    with opened() as client:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert client.get(pod["containers"][0][probe]["httpGet"]["path"]).status_code == 200
