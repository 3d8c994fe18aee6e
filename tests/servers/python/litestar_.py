"""Litestar's middleware."""

import os

from litestar import Litestar, get
from litestar.middleware.rate_limit import RateLimitConfig

from settings import COUNT, run_asgi


@get("/")
async def answer() -> str:
    return "ok"


limit = RateLimitConfig(rate_limit=(os.environ["UNIT"], COUNT))
run_asgi(Litestar(route_handlers=[answer], middleware=[limit.middleware]))
