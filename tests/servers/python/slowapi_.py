"""slowapi. MODE: `` (no fields, its default) or `fields`."""

from fastapi import FastAPI, Request, Response
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address

from settings import LIMIT, MODE, run_asgi

limiter = Limiter(key_func=get_remote_address, headers_enabled=MODE == "fields")
app = FastAPI()
app.state.limiter = limiter
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)


@app.get("/")
@limiter.limit(LIMIT)
async def answer(request: Request, response: Response):
    return "ok"


run_asgi(app)
