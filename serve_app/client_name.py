"""Which program is speaking, as its User-Agent header says."""

import re

from serve_app.http_message import Headers

_PRODUCT = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,31}(?=/|\s|$)")
"""A short first product's name; `claude-cli` of `claude-cli/2.0.14 (external, cli)`."""


def client_name(headers: Headers) -> str | None:
    """Return the client's name, or None where it sends none that is short and plain."""
    sent = dict(headers).get(b"user-agent", b"").decode("latin-1")
    product = _PRODUCT.match(sent)
    return product and product[0]
