"""fastapi-limiter 0.1: over Redis."""

from contextlib import asynccontextmanager

import redis.asyncio as redis
from fastapi import Depends, FastAPI
from fastapi_limiter import FastAPILimiter
from fastapi_limiter.depends import RateLimiter

from settings import COUNT, HOST, PORT2, SECONDS, run_asgi


@asynccontextmanager
async def lifespan(_):
    await FastAPILimiter.init(redis.Redis(host=HOST, port=PORT2))
    yield


app = FastAPI(lifespan=lifespan)


@app.get("/", dependencies=[Depends(RateLimiter(times=COUNT, seconds=SECONDS))])
async def answer():
    return "ok"


run_asgi(app)
