"""Programs in processes of their own, what commands print in this one, and rows of databases."""

import json
import os
import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path

from exaul.commands.main import main

ROOT = Path(__file__).parents[1]
EXAUL = sys.executable, "-m", "exaul"
ENTRY = "from exaul.commands.main import entry; entry()"  # a program that runs a command


def variables(**more):
    """The variables of a process that imports this checkout and computes on the CPU."""
    return os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | more


def python(code, *argv, folder=None, env=None, status=0, **options):
    """Run a program, which must end with the status, unless that is None; return the process and its texts."""
    command = [sys.executable, "-c", code, *argv]
    options = {"env": variables() if env is None else env, "stdout": subprocess.PIPE} | options
    process = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False, **options)
    assert status in (None, process.returncode), process.stderr
    return process


@contextmanager
def serving(command, folder=None, env=None, stderr=None):
    """Run a command that serves; yield the process and its address. Then end it, as an operator does."""
    pipes = {"stdout": subprocess.PIPE, "stderr": stderr, "text": True}
    with subprocess.Popen(command, cwd=folder, env=variables() if env is None else env, **pipes) as running:
        try:
            yield running, running.stdout.readline().split()[-1]
        finally:
            running.terminate()
        assert running.wait(60) == 0


@contextmanager
def service(command, folder, env):
    """Run a command that serves, and yield a function that asks it.

    The function takes a path, and a body or None; it returns the reply to a body as an object, or a page as bytes.
    """

    def ask(path, body=None):
        sent = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address + path, sent, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read() if body is None else json.load(reply)

    with serving(command, folder, env) as (_, address):
        yield ask


def sql(path, *statement):
    """Run a statement, perhaps with its values, on a file that is closed then; return the rows."""
    with closing(sqlite3.connect(path)) as file, file:
        return file.execute(*statement).fetchall()


def output_of(argv, capsys, status=0):
    """Run a command, which must end with a status; return what is printed on stdout."""
    assert main(argv) == status
    return capsys.readouterr().out


def refusal_of(argv, capsys, program=main):
    """Run a command, which must end with status 2 and print one line, on stderr; return that line."""
    assert program(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err
