"""Who may use the server, and how an error looks to the client.

Without a token the server is for this machine: besides listening on loopback alone it refuses what any web
page open in a browser here could send. A page could have its own name resolve to loopback, so requests that
name another host are refused; it could send to loopback without reading the answer, so those from pages are.
"""

import base64
import binascii
import hmac
import logging

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rollouts.api.group_store import StoreUnavailable
from rollouts.api.scored_group import BadGroup
from rollouts.api.service import Service
from rollouts.api.settings import LOOPBACK

logger = logging.getLogger(__name__)

OPEN_PATHS = ("/healthz",)
PUSH_PATHS = ("/v1/groups", "/scored_data", "/scored_data_list")


def require_token(token: str) -> Middleware:
    """Make a middleware that lets only requests with the token through.

    As `Authorization: Bearer TOKEN`, or as the password of basic authentication, which clients that know
    nothing of tokens send when it is part of the URL.
    """
    expected = token.encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = _token(request.headers.get("Authorization", ""))
        if request.path not in OPEN_PATHS and not hmac.compare_digest(given, expected):
            raise web.HTTPUnauthorized(
                text="a token is needed: Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"}
            )
        return await handler(request)

    return check


@web.middleware
async def only_this_machine(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests that name another host than this one, and those of web pages."""
    if "Origin" in request.headers:
        raise web.HTTPForbidden(text="Origin: web pages may not use this server; one with a token takes any")
    name = request.url.host or ""
    if name not in LOOPBACK:
        raise web.HTTPForbidden(
            text=f"Host: {name!r} is not this machine; a server with a token takes any name"
        )
    return await handler(request)


def explain_errors(service: Service) -> Middleware:
    """Make a middleware that answers every refusal as `{"detail": …}` and counts refused pushes."""

    @web.middleware
    async def explain(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            status, detail, headers = error.status, error.text or error.reason, error.headers
        except (BadGroup, msgspec.ValidationError) as error:
            status, detail, headers = 422, str(error), {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, web.RequestPayloadError) as error:
            status, detail, headers = 400, f"the body can't be read: {error}", {}
        except StoreUnavailable as error:
            logger.error("%s %s: the store: %s", request.method, request.path, error)
            status, detail, headers = 503, f"the store can't be used: {error}", {"Retry-After": "1"}
        if request.path in PUSH_PATHS:
            service.queue.counts.refuse(str(status))
        kept = {name: value for name, value in headers.items() if name in ("Retry-After", "WWW-Authenticate")}
        body = msgspec.json.encode({"detail": detail})
        return web.Response(status=status, body=body, content_type="application/json", headers=kept)

    return explain


def _token(authorization: str) -> bytes:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return value.encode("utf-8", "surrogateescape") if scheme.lower() == "bearer" else b""
