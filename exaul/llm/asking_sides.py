"""The asking side of a dialogue: a user that reads a text, or an adversary that sees the learner's decisions."""

import re
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exaul.llm.asker import Asker
from exaul.llm.calls import CallRefused
from exaul.llm.prompts import fill
from exaul.llm.questions import Question
from exaul.llm.scores import by_schema

SHIFT = "SHIFT"
OTHER_ROLE = {"assistant": "user", "user": "assistant"}  # roles of a user's view, as the answering model sees them
GREETING = "Hello! What would you like to know?"  # first message to the user
CHOICE_REQUEST = "Choose now."  # user message after the adversary's prompt
MAX_LISTS = 3  # lists of candidates shown per round; then a candidate is drawn
MAX_TRIES = 10  # texts in a row without a question, after which the dialogue ends


class DialogueTurn(NamedTuple):
    """A question of a dialogue, and how it came about."""

    question: Question  # its id is the topic; without answers, the context decides
    earlier_messages: tuple[dict[str, str], ...]  # earlier rounds on this text, for the answering model
    choice_count: int  # number of questions to choose from; 1 if the user wrote the question
    asker_reply: str  # full reply of the user or adversary


class NothingLeft(Exception):
    """No question is left to ask."""


class User:
    """A model that asks about one text after another (paper, appendix "Interactive Environment Setup")."""

    def __init__(self, asker: Asker, texts: Sequence[str], turns: int, rng: np.random.Generator) -> None:
        """Ask at most ``turns`` questions per text. Texts come in random order, all before any comes again."""
        self._asker, self._texts, self._max_questions, self._rng = asker, texts, turns, rng
        self._text_queue, self._topic, self.left_out = deque[int](), 0, Counter[str]()
        self.skip()

    def skip(self) -> None:
        """Discard the last question; continue with another text."""
        if not self._text_queue:
            self._text_queue.extend(self._rng.permutation(len(self._texts)).tolist())
        self._text_number = self._text_queue.popleft()
        self._topic += 1
        self._messages = [{"role": "user", "content": GREETING}]  # roles swapped: the user is the assistant

    async def ask(self) -> DialogueTurn:
        """Return the next question; raise NothingLeft if the model asks nothing about MAX_TRIES texts in a row."""
        for _ in range(MAX_TRIES):
            if len(self._messages) > 2 * self._max_questions:  # the greeting, then two messages per question
                self.skip()
            text = self._texts[self._text_number]
            system_message = {"role": "system", "content": fill(self._asker.config.prompts["user"], context=text)}
            body = {"model": self._asker.judge_model, "messages": [system_message, *self._messages]}
            try:
                question = (await self._asker.ask(body)).text
                reason = "shifts" if question else "empty questions"
            except CallRefused as refused:  # it is stored, and so would end every later run, too
                question, reason = "", str(refused)
            if question and SHIFT not in question:
                messages = tuple(message | {"role": OTHER_ROLE[message["role"]]} for message in self._messages[1:])
                self._messages.append({"role": "assistant", "content": question})
                topic = f"text {self._text_number + 1}, topic {self._topic}"
                return DialogueTurn(Question(topic, question, (), "", text), messages, 1, question)
            self.left_out[reason] += 1
            self.skip()
        raise NothingLeft(f"nothing was asked about {MAX_TRIES} texts in a row")

    def observe_outcome(self, reply: str, answered: bool, error: float) -> None:
        """Show the user the reply to its last question."""
        self._messages.append({"role": "user", "content": reply})


class Adversary:
    """A model that chooses questions the learner will get wrong (appendix "Adaptive-Adversary Environment Setup").

    It reads the paper's prompt: candidates, the last decisions with the correctness of the answers, and the rates
    of wrong answers shown and of right answers withheld. It sees neither the learner nor the scores.
    """

    def __init__(
        self, asker: Asker, pool: Sequence[Question], count: int, memory: int, rng: np.random.Generator
    ) -> None:
        """Choose from ``count`` questions, with the last ``memory`` decisions. No question is asked twice."""
        self._asker, self._rng, self.left_out = asker, rng, Counter[str]()
        self._pool = deque(pool[n] for n in rng.permutation(len(pool)))
        self._candidates = [self._pool.popleft() for _ in range(min(count, len(pool)))]
        self._history, self._step = deque[str](maxlen=memory), 0
        self._shown_wrong = self._withheld_right = 0.0

    async def ask(self) -> DialogueTurn:
        """Return the next question; raise NothingLeft if none is left."""
        if not self._candidates:
            raise NothingLeft("all questions were asked")
        index, reply_text = await self._choose()
        for _ in range(MAX_LISTS - 1):
            if index is not None or len(self._pool) < len(self._candidates):
                break
            self.left_out["shifts"] += 1
            self._pool.extend(self._candidates)
            self._candidates = [self._pool.popleft() for _ in self._candidates]
            index, reply_text = await self._choose()
        if index is None:
            self.left_out["shifts that were not granted"] += 1
            index = int(self._rng.integers(len(self._candidates)))
        self._chosen = self._candidates[index]
        count = len(self._candidates)
        if self._pool:
            self._candidates[index] = self._pool.popleft()
        else:
            del self._candidates[index]
        return DialogueTurn(self._chosen, (), count, reply_text)

    async def _choose(self) -> tuple[int | None, str]:
        """Return the chosen position, or None to request another list, and the reply."""
        candidates = "\n".join(f"{n}: {question.question}" for n, question in enumerate(self._candidates))
        history = "\n".join(self._history)
        prompts, steps = self._asker.config.prompts, max(1, self._step)
        prompt = fill(
            prompts["adversary"],
            history=f"{candidates}\n\nDecision history:\n{history or '(none)'}",
            step=self._step,
            total_incorrect_not_rejected=f"{self._shown_wrong / steps:.4f}",
            total_correct_rejected=f"{self._withheld_right / steps:.4f}",
            instructions=prompts["instructions"],
        )
        messages = [{"role": "system", "content": prompt}, {"role": "user", "content": CHOICE_REQUEST}]
        body = {"model": self._asker.judge_model, "messages": messages}
        reply = await self._asker.ask(body)
        index = self._index(reply.text)
        if index is not None or SHIFT in reply.text:
            return index, reply.text
        # The reply is neither a number nor SHIFT: ask once more, with a schema that allows only valid positions.
        schema = {"type": "integer", "enum": [*range(len(self._candidates))]}
        value, reply_text = await by_schema(self._asker.ask, body, "index", schema)
        index = self._index(value)
        if index is None:
            self.left_out["unreadable choices, drawn instead"] += 1
            index = int(self._rng.integers(len(self._candidates)))
        else:
            self.left_out["choices that needed a second try"] += 1
        return index, f"{reply.text}\n{reply_text}" if reply_text else reply.text

    def _index(self, text: str) -> int | None:
        match = re.fullmatch(r"\W*(\d{1,9})\W*", text)
        return int(match[1]) if match and int(match[1]) < len(self._candidates) else None

    def skip(self) -> None:
        """Discard the last question; it is not asked again."""

    def observe_outcome(self, reply: str, answered: bool, error: float) -> None:
        """Record the learner's decision and the error of the answer."""
        self._step += 1
        self._shown_wrong += error if answered else 0.0
        self._withheld_right += 0.0 if answered else 1.0 - error
        label = f"{1 - error:g}"
        self._history.append(f"step {self._step}: {self._chosen.question} -> IDK=={not answered}, label=={label}")
