"""Questions and answers that wait for an audit, in a file beside the journal, which itself has no texts."""

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from exaul.engine.checks import BadInput

LONGEST_KEPT = 20_000  # characters that are kept of a question and of an answer (chosen)
CUT = " [cut]"  # after a text that was longer
DAY = 86_400.0  # seconds


class AnswerText(NamedTuple):
    """The question of an answer, and its text."""

    question: str
    text: str


class AnswerTexts:
    """The texts of a service in FILE.texts. The caller serializes all calls."""

    def __init__(self, path: Path, retain_days: float) -> None:
        """Open or create the file, which its owner alone can read.

        Args:
            path: of the journal, to which ``.texts`` is added.
            retain_days: days for which a text is kept after its verdict, >= 0.

        Raises:
            BadInput: the file cannot be used.
        """
        self._retain_seconds = retain_days * DAY
        file = path.with_name(f"{path.name}.texts")
        try:
            os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(file, timeout=0.1, check_same_thread=False, isolation_level=None)
            self._connection.execute("PRAGMA secure_delete = ON")  # deleted bytes are overwritten
            self._connection.execute("PRAGMA journal_mode = TRUNCATE")  # and are in no other file either
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS texts"
                " (id TEXT PRIMARY KEY, question TEXT NOT NULL, answer TEXT NOT NULL, judged REAL)"
            )
            self._connection.execute("CREATE INDEX IF NOT EXISTS by_time ON texts (judged)")
            self.delete_old()
        except (OSError, sqlite3.Error) as error:
            raise BadInput(f"{file}: cannot be used ({error})") from error

    def add(self, id: str, text: AnswerText) -> None:
        """Keep the text of a decision, cut after LONGEST_KEPT characters each, and delete old texts."""
        query = "INSERT OR REPLACE INTO texts VALUES (?, ?, ?, NULL)"
        self._connection.execute(query, (id, *map(_storable, text)))
        self.delete_old()

    def of(self, id: str) -> AnswerText | None:
        """Return the text of a decision; None if it is not kept, or another program has the file."""
        with suppress(sqlite3.Error):
            for row in self._connection.execute("SELECT question, answer FROM texts WHERE id = ?", (id,)):
                return AnswerText(*row)
        return None

    def close_text(self, id: str) -> None:
        """Note that a decision has its verdict, and delete old texts."""
        self._connection.execute("UPDATE texts SET judged = ? WHERE id = ? AND judged IS NULL", (time.time(), id))
        self.delete_old()

    def delete_old(self) -> None:
        """Delete the texts whose verdicts are older than ``retain_days``."""
        self._connection.execute("DELETE FROM texts WHERE judged <= ?", (time.time() - self._retain_seconds,))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _storable(text: str) -> str:
    """Return a text of at most LONGEST_KEPT characters, and valid Unicode: JSON may have half a surrogate pair."""
    cut = text if len(text) <= LONGEST_KEPT else text[: LONGEST_KEPT - len(CUT)] + CUT
    return cut.encode(errors="replace").decode()
