"""The pages, and the documentation site: ``python -m docs``."""
