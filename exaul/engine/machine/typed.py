"""The command ``exaul`` as the user types it, for advice in messages."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def typed(*arguments: str) -> str:
    """Return ``exaul`` with some arguments as it was called in this process, quoted for a shell."""
    called = Path(sys.argv[0])
    if called.parts[-2:] == ("exaul", "__main__.py"):
        words = ["python", "-m", "exaul"]
    elif called.name == "exaul" and shutil.which("exaul") is None:
        words = [sys.argv[0]]  # by its path
    else:
        words = ["exaul"]
    # uv sets UV for all that it runs (its reference, "Environment variables")
    return shlex.join([*(["uv", "run"] if "UV" in os.environ else []), *words, *arguments])


def resume_advice(out: str) -> str:
    """Return the clause that says how to continue the sweep in a folder."""
    return f"continue with: {typed('sweep', '--resume', out)}"
