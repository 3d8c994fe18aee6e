"""fastapi-limiter 0.2: pyrate-limiter in memory."""

from fastapi import Depends, FastAPI
from fastapi_limiter.depends import RateLimiter
from pyrate_limiter import Duration, Limiter, Rate

from settings import COUNT, SECONDS, run_asgi

app = FastAPI()
limit = RateLimiter(limiter=Limiter(Rate(COUNT, Duration.SECOND * SECONDS)))


@app.get("/", dependencies=[Depends(limit)])
async def answer():
    return "ok"


run_asgi(app)
