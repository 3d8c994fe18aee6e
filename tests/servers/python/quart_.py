"""quart-rate-limiter."""

from datetime import timedelta

from quart import Quart
from quart_rate_limiter import RateLimiter, rate_limit

from settings import COUNT, HOST, PORT, SECONDS

app = Quart(__name__)
RateLimiter(app)


@app.get("/")
@rate_limit(COUNT, timedelta(seconds=SECONDS))
async def answer():
    return "ok"


app.run(host=HOST, port=PORT)
