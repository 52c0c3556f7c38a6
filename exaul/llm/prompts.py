"""Prompts: one text file per role, with the names of inserted values in braces."""

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from exaul.engine.checks import BadInput, check_known

ROLES = {  # names that the prompt of a role may contain, and whether it must
    "answer": {"context": False, "question": True},
    "judge": {"context": False, "question": False, "answers": False, "answer": True},
    "user": {"context": True},
    "adversary": {
        "history": True,
        "step": False,
        "total_incorrect_not_rejected": False,
        "total_correct_rejected": False,
        "instructions": False,
    },
    "instructions": {},
}
SHORT_ANSWERS = files(__package__) / "roles" / "short.txt"  # with examples, for models that write sentences
PLACEHOLDER = re.compile(r"\{(\w+)\}")


def read_prompts(paths: Mapping[str, Path]) -> dict[str, str]:
    """Return the prompts by role; ``paths`` has the user's files for some roles.

    Raises:
        BadInput: a role is unknown, or its file is unreadable, contains an unknown name or lacks a required one.
    """
    check_known("prompt", paths, ROLES)
    texts = {role: (files(__package__) / "roles" / f"{role}.txt").read_text("utf-8") for role in ROLES}
    for role, path in paths.items():
        try:
            texts[role] = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path}: unreadable ({getattr(error, 'strerror', None) or error})") from error
        for name in PLACEHOLDER.findall(texts[role]):
            if name not in ROLES[role]:
                allowed = ", ".join(f"{{{name}}}" for name in ROLES[role]) or "nothing"
                raise BadInput(f"{path}: {{{name}}} found; the prompt of {role} can be filled with {allowed}")
        for name, is_needed in ROLES[role].items():
            if is_needed and f"{{{name}}}" not in texts[role]:
                raise BadInput(f"{path}: no {{{name}}}; the prompt of {role} needs it")
    return texts


def fill(prompt: str, **values: object) -> str:
    """Insert values into a prompt. Other braces, and braces within values, stay unchanged."""
    return PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), prompt).strip()
