"""An endpoint in a thread of the tests, which replies as a real one does, or fails as a test says."""

import asyncio
import json
import math
import re
import subprocess
import threading
import time
from collections import Counter
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.processes import EXAUL

QUESTION = re.compile(r"Question: (.*)\n")
KNOWN = {f"What is {n} plus {n}?": str(2 * n) for n in range(200)}


def completion(text, logprobs=None, finish="stop", top=(), **more):
    """The body of a chat completion; tokens are words, each with its space."""
    words = re.findall(r"\s*\S+", text)
    each = logprobs if logprobs is not None else [-0.1 * (n + 1) for n in range(len(words))]
    content = [
        {"token": word, "bytes": list(word.encode()), "logprob": x, "top_logprobs": list(top) if n == 0 else []}
        for n, (word, x) in enumerate(zip(words, each, strict=True))
    ]
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": finish, "message": message, "logprobs": {"content": content}}
    usage = {"prompt_tokens": 10, "completion_tokens": len(words), "total_tokens": 10 + len(words)}
    about = {"id": "x", "object": "chat.completion", "created": 0, "model": "stub-1", "system_fingerprint": "fp"}
    return about | {"choices": [choice], "usage": usage} | more


def reply(body):
    """Right answers to even sums, wrong ones to the others; a judge that knows, and samples of which some agree."""
    prompt = body["messages"][-1]["content"]
    question = QUESTION.search(prompt)
    if "Reference answers:" in prompt:
        given = re.search(r"\nAnswer: (.*)", prompt)[1]
        return completion("Yes." if given == KNOWN.get(question[1], "the text says so") else "No.")
    if "Second answer:" in prompt:
        first, second = re.search(r"First answer: (.*)\nSecond answer: (.*)", prompt).groups()
        return completion("yes" if first == second else "no")
    if question is None or "proposed answer right" in prompt:
        chances = {"Yes": 0.6, " no": 0.2} if "proposed" in prompt else {"Paris": 0.9}
        return completion("Paris", top=[{"token": token, "logprob": math.log(x)} for token, x in chances.items()])
    right = KNOWN.get(question[1], "the text says so")
    number = int("".join(re.findall(r"\d", question[1])[:1]) or 0)
    if body["temperature"] > 0:
        return completion(right if (number + body["seed"]) % 3 else "who knows")
    return completion(right if number % 2 else f"perhaps {number}")


def write_rows(path, rows):
    """Write JSON lines, and return their path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def command_at(url, out, *words):
    """A command that asks a model of an endpoint, each call once, and writes into a folder."""
    argv = [*words, "--endpoint", url, "--model", "m", "--out", str(out)]
    return [*argv, "--progress", "quiet", "--retries", "0"]


def killed(stub, argv, seconds):
    """Run a command in a process of its own, and kill it so long after its first call."""
    before = len(stub.asked)
    with subprocess.Popen([*EXAUL, *argv]) as running:
        while len(stub.asked) == before and running.poll() is None:
            time.sleep(0.005)
        time.sleep(seconds)
        running.kill()


def by_pattern(replies):
    """A rule that gives the reply of the first pattern that is found in a request, else the usual one."""
    return lambda body, before: next((found for each, found in replies.items() if re.search(each, str(body))), None)


USUAL = by_pattern({})


class Stub:
    """What was asked, and what to reply instead of ``reply``."""

    def __init__(self):
        self.asked, self.keys, self.headers, self.queries, self.most, self._inside = [], [], [], [], 0, 0
        self.cancelled = 0  # calls whose client disconnected
        self.rule = USUAL  # what to reply to a body that was asked so often before
        self.delay = 0.0
        self.url = None

    async def complete(self, request):
        """Reply to a chat completion."""
        body = await request.json()
        before = self.asked.count(body)
        self.asked.append(body)
        self.keys.append(request.headers.get("authorization"))
        self.headers.append(dict(request.headers))
        self.queries.append(request.url.query)
        self._inside += 1
        self.most = max(self.most, self._inside)
        try:
            await self._wait(request)
            found = self.rule(body, before)
            if found is None:
                found = reply(body)
            return JSONResponse(found) if isinstance(found, dict) else found
        finally:
            self._inside -= 1

    async def _wait(self, request):
        """Wait for the delay, or until the client disconnects."""
        if self.delay:
            try:
                async with asyncio.timeout(self.delay):
                    while (await request.receive())["type"] != "http.disconnect":
                        pass
                    self.cancelled += 1
            except TimeoutError:
                pass

    async def models(self, request):
        """List one model, or return the one that is asked for."""
        self.headers.append(dict(request.headers))
        await self._wait(request)
        if "name" in request.path_params:
            return JSONResponse({"id": request.path_params["name"], "object": "model"})
        return JSONResponse({"object": "list", "data": [{"id": "stub-1", "object": "model"}]})

    def counts(self):
        """How often each prompt was asked."""
        return Counter(str(body) for body in self.asked)


class Server:
    """An address, whose requests go to the stub of the test that runs."""

    def __init__(self):
        self.url = None
        self.renew()

    def renew(self):
        """Return a stub that was asked nothing yet; calls in flight stay with the earlier one."""
        self.stub = Stub()
        self.stub.url = self.url
        return self.stub

    async def reply(self, request):
        """Pass a request on."""
        return await (self.stub.models if "/models" in request.url.path else self.stub.complete)(request)


@contextmanager
def serving():
    """A server that listens."""
    found = Server()
    paths = {"chat/completions": "POST", "embeddings": "POST", "models": "GET", "models/{name:path}": "GET"}
    routes = [Route(f"/v1/{path}", found.reply, methods=[method]) for path, method in paths.items()]
    app = Starlette(routes=routes)
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="critical", timeout_graceful_shutdown=1, ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    found.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield found
    finally:
        server.should_exit = True
        thread.join()
