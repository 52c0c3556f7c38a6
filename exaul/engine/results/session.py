"""The name under which ``exaul/engine/play/units.py`` imports ``RunFolder``."""

from exaul.engine.results.run_folder import RunFolder as Session

__all__ = ["Session"]
