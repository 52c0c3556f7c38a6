"""Read feedback that was exported from Open WebUI."""

from collections.abc import Iterator
from pathlib import Path

from exaul.engine.logs import files
from exaul.engine.logs.log import is_missing, require_columns
from exaul.llm.readers.rows import Note, Row, field, holding, read_rows, text_cell, time_cell, unpacked

RATING = "rating"  # name of the only feedback
MESSAGES = "snapshot.chat.chat.history.messages"


def open_webui(path: Path, score: str | None) -> Iterator[Note]:
    """Read the array of the page Evaluations, button Export.

    Open WebUI stores no score: it is an entry that a filter added to the message, or a program to ``meta`` or
    ``data`` of the feedback. The source is the model.
    """
    present = files.columns(path)
    require_columns(path, present, ("data", "meta"))
    fields = ("type", "data", "meta", "created_at", "updated_at", *([] if score is None else [MESSAGES]))
    for number, row in read_rows(path, holding(present, fields)):
        if field(row, "type") not in (None, RATING):
            continue
        id = text_cell(path, number, "meta.message_id", field(row, "meta.message_id"))
        model = text_cell(path, number, "data.model_id", field(row, "data.model_id"))
        time = "created_at" if is_missing(row.get("updated_at")) else "updated_at"
        when = time_cell(path, number, time, row.get(time))
        yield Note(path, number, id, id, RATING, field(row, "data.rating"), when, model, human=True)
        if score is not None:
            message = _message(row, id)  # an id is no path: it may have thousands of dots
            values = [field(message, score), *(field(row, f"{part}.{score}") for part in ("meta", "data"))]
            value = next((each for each in values if not is_missing(each)), None)
            yield Note(path, number, id, id, score, value, when, model, human=False)


def _message(row: Row, id: str) -> Row:
    messages = unpacked(field(row, MESSAGES))
    message = unpacked(messages.get(id)) if isinstance(messages, dict) else None
    return message if isinstance(message, dict) else {}
