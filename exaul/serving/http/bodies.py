"""The bodies of requests and replies, which pydantic checks and describes in OpenAPI."""

from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)

from exaul.engine.checks import check_holds
from exaul.serving.abstainer import as_score, as_text
from exaul.serving.entries import Outcome

MOST_FEEDBACK = 1000  # items of one request
MOST_FIELDS = 16  # of an object in a request
COMPLETION_PREFIX = "chatcmpl-"  # of the id of a completion, as OpenAI's
LONGEST_TEXT = 256  # characters of an id or a key


def check_text(name: str, minimum: int, value: Any) -> str:
    """Return a text of ``minimum`` to LONGEST_TEXT characters; ``BadInput``: it is another value."""
    # an empty id is often a variable that was not set, and would get the decision of another answer
    fits = minimum <= len(as_text(name, value)) <= LONGEST_TEXT
    check_holds(name, value, fits, f"{minimum} to {LONGEST_TEXT} characters long")
    return str(value)


def _check_new_id(value: Any) -> str:
    # else a client could decide on an answer of the gateway that is on its way
    id = check_text("id", 1, value)
    allowed = f"an id that does not begin as those of the gateway, {COMPLETION_PREFIX}"
    check_holds("id", value, not id.startswith(COMPLETION_PREFIX), allowed)
    return id


def _check_error(value: Any) -> float:
    is_share = isinstance(value, int | float) and 0 <= value <= 1  # True, too
    check_holds("error", value, is_share, "a number in [0, 1], true or false")
    return float(value)


_TEXT = {"type": "string", "maxLength": LONGEST_TEXT}
_UNIT = {"type": "number", "minimum": 0, "maximum": 1}
Key = Annotated[str, PlainValidator(partial(check_text, "key", 0)), WithJsonSchema(_TEXT)]
Id = Annotated[str, PlainValidator(partial(check_text, "id", 1)), WithJsonSchema(_TEXT | {"minLength": 1})]
NewId = Annotated[str, PlainValidator(_check_new_id), WithJsonSchema(_TEXT | {"minLength": 1})]
Score = Annotated[float, PlainValidator(as_score), WithJsonSchema(_UNIT)]
Error = Annotated[float, PlainValidator(_check_error), WithJsonSchema({"anyOf": [_UNIT, {"type": "boolean"}]})]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_number(cls, value: Any) -> Any:
        # pydantic describes each unknown field: for 1 MiB of them that takes most of a second
        if isinstance(value, dict) and len(value) > MOST_FIELDS:
            raise ValueError(f"fields: {len(value)} found; there must be at most {MOST_FIELDS}")
        return value


class DecideBody(_Body):
    """An answer with a score."""

    score: Score
    key: Key = ""
    id: NewId | None = None


class DecideReply(BaseModel):
    """The decision. ``id`` and ``probability`` are null only if the journal failed and ``error`` says so."""

    id: str | None
    answer: bool
    probability: float | None
    audit: bool
    repeated: bool = False  # whether this is the decision of an earlier request with this id
    error: str | None = None


class FeedbackBody(_Body):
    """Feedback on a decision: an error or a thumb, and not both."""

    id: Id
    error: Error | None = None
    thumb: Literal["up", "down"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.error is None) == (self.thumb is None):
            raise ValueError("error, thumb: one of the two is needed, and not both")
        return self

    @property
    def rating(self) -> Any:
        """The error, or the thumb."""
        return self.thumb if self.error is None else self.error


FeedbackBodies = Annotated[
    Annotated[FeedbackBody, Tag("item")]
    | Annotated[list[FeedbackBody], Field(max_length=MOST_FEEDBACK, fail_fast=True), Tag("list")],
    Discriminator(lambda body: "list" if isinstance(body, list) else "item"),
]


class WithdrawBody(_Body):
    """The decision whose answer was not shown."""

    id: Id


class Accepted(BaseModel):
    """Whether the rating was learned, or the answer is withdrawn; the reason is the outcome."""

    accepted: bool
    reason: Outcome
