"""What docs/operations.md says of scopes, limits, metrics and backups is so."""

import json
import re
import subprocess
from pathlib import Path

import yaml

from exaul import Abstainers
from exaul.commands.main import main
from exaul.serving.http import guard, server, upstream
from exaul.serving.http.settings import SCOPES
from tests.processes import EXAUL, python, serving
from tests.serving.http.apps import asked, blocks

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")


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
    assert named == {name for name in exported if not name.endswith("_created")}


def test_a_backup_is_a_journal_of_the_service(opened, in_folder):
    (copy,) = re.findall(r'sqlite3 state\.sqlite "(.*?)"', blocks(PAGE, "Backup", "sh")[0])
    code = f"import sqlite3; sqlite3.connect('state.sqlite', isolation_level=None).execute({copy!r})"
    with opened("state.sqlite", learner="aci-rank") as client:
        ids = [client.post("/v1/decide", json={"score": 0.5}).json()["id"] for _ in range(50)]
        python(code)
        assert client.post("/v1/decide", json={"score": 0.5}).status_code == 200
    assert main(["journal", "verify", "backup.sqlite"]) == 0
    with Abstainers("backup.sqlite") as abstainers:
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


def test_one_process_at_a_time_in_kubernetes(opened):
    deployment = yaml.safe_load(blocks(PAGE, "Kubernetes", "yaml")[0])["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > server.SHUTDOWN_SECONDS
    with opened() as client:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert client.get(pod["containers"][0][probe]["httpGet"]["path"]).status_code == 200
