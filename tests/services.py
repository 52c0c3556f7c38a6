"""A service in a process of its own."""

import json
import signal
import subprocess
import urllib.request
from contextlib import contextmanager


@contextmanager
def service(command, folder, env):
    """Run a command that serves, and yield a function that asks it; then end it, as an operator does.

    The function takes a path, and a body or None; it returns the reply to a body as an object, or a page as bytes.
    """

    def ask(path, body=None):
        sent = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address + path, sent, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read() if body is None else json.load(reply)

    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().split()[-1]
            yield ask
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
