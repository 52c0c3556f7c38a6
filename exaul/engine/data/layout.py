"""Where a log has its scores and labels."""

from dataclasses import dataclass

from exaul.engine.checks import BadInput, Configuration, setting


@dataclass(frozen=True, kw_only=True)
class Layout(Configuration):
    """Where a log keeps its scores and labels.

    Raises:
        BadInput: both label columns are named.
    """

    score: str = setting("score", "column of confidence scores in [0, 1]", "COL")
    error: str | None = setting(
        None, "column of errors: 0/1, true/false or a number in [0, 1]; 1 is wrong (default: error)", "COL"
    )
    correct: str | None = setting(None, "column that says the opposite: 1 is right (default: correct)", "COL")
    drop_missing: bool = setting(False, "leave out, and count, rows whose score or label is empty")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.error is not None and self.correct is not None:
            raise BadInput("error: given together with correct; choose one of the two")
