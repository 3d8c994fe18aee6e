"""flask-limit."""

from flask import Flask
from flask_limit import RateLimiter

from settings import COUNT, SECONDS, run_wsgi

app = Flask(__name__)
app.config.update(RATELIMIT_LIMIT=COUNT, RATELIMIT_PERIOD=SECONDS)
limiter = RateLimiter(app)


@app.get("/")
@limiter.rate_limit
def answer():
    return "ok"


run_wsgi(app)
