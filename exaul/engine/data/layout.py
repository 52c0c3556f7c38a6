"""The columns of a log."""

from dataclasses import dataclass

from exaul.engine.checks import BadInput, Configuration, setting


@dataclass(frozen=True, kw_only=True)
class Layout(Configuration):
    """Names of the columns that hold scores and labels. Only one of ``error`` and ``correct`` may be given."""

    score: str = setting("score", "column of confidence scores in [0, 1]", "COL")
    error: str | None = setting(
        None, "column of errors: 0/1, true/false or a number in [0, 1]; 1 is wrong (default: error)", "COL"
    )
    correct: str | None = setting(None, "the opposite: column where 1 is right (default: correct)", "COL")
    drop_missing: bool = setting(False, "leave out rows with an empty score or label, and report their number")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.error is not None and self.correct is not None:
            raise BadInput("error: given together with correct; choose one of the two")
