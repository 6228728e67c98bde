"""A web server of files with ranges: ``python webserver.py FOLDER PORT``."""

from __future__ import annotations

import sys

from aiohttp import web


def application(folder: str) -> web.Application:
    """Files of a folder; below ``/private`` only for user:password, below ``/signed`` only with ``?sig=signature``.

    ``/to/HOST:PORT/PATH`` redirects there, ``/to/self/PATH`` to this server.
    """

    @web.middleware
    async def guard(request: web.Request, handler):
        if request.path.startswith("/private/"):
            auth = request.headers.get("Authorization", "")
            if auth != "Basic dXNlcjpwYXNzIHdvcmQ=":  # user:pass word
                raise web.HTTPUnauthorized
        if request.path.startswith("/signed/") and request.query.get("sig") != "signature":
            raise web.HTTPForbidden
        if request.path.startswith("/to/"):
            host, _, path = request.path.removeprefix("/to/").partition("/")
            raise web.HTTPFound(f"/{path}" if host == "self" else f"http://{host}/{path}")
        return await handler(request)

    app = web.Application(middlewares=[guard])
    app.router.add_static("/", folder)
    return app


if __name__ == "__main__":
    web.run_app(application(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), print=None, access_log=None)
