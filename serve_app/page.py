"""The page of sessions: files that a browser is given, and what they may not do there."""

from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from serve_app.api_error import ApiError

INDEX = "index.html"

TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

HEADERS = {
    "cache-control": "no-cache",  # to be asked again each time; its ETag says that it is the same
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'; require-trusted-types-for 'script'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Names of sessions come from strangers: a browser that would run what is in one must not."""


def page_routes() -> list[Route]:
    """Return the routes of the page, /warmturn/, and of what it is made of.

    The page says where these and its data are relative to itself, so it works under any prefix.
    """
    kept = {
        file.name: (file.read_bytes(), TYPES[file.name.rpartition(".")[2]])
        for file in files("serve_app").joinpath("explorer").iterdir()
        if file.name.rpartition(".")[2] in TYPES
    }

    async def enter(_: Request) -> Response:
        return RedirectResponse("warmturn/")

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", INDEX)
        if name not in kept:
            path = request.url.path
            return Response(
                ApiError(404, f"there is no {name}").body(path),
                404,
                media_type="application/json",
            )
        content, media_type = kept[name]
        etag = f'"{sha256(content).hexdigest()[:32]}"'
        headers = {**HEADERS, "etag": etag, "content-type": media_type}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    return [
        Route("/warmturn", enter),
        Route("/warmturn/", file),
        Route("/warmturn/explorer/{name:path}", file),
    ]
