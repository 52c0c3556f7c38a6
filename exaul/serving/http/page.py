"""The page at ``/``: one HTML file, with headers that let it load and run nothing else."""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path


def read_page() -> tuple[str, dict[str, str]]:
    """Return the page and its headers.

    The Content-Security-Policy allows the script and the style in the file by their hashes and connections to this
    service. Trusted Types forbid to make HTML from strings.
    """
    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_hashes(page, 'script')}; style-src {_hashes(page, 'style')}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return page, {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",  # a new version's page belongs to its API
    }


def _hashes(page: str, tag: str) -> str:
    contents = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in contents)
