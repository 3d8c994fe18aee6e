"""Flask-Limiter. MODE: `` (no fields, its default), or a strategy of its fields; `http-date` for `Retry-After`."""

from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

from settings import LIMIT, MODE, run_wsgi

app = Flask(__name__)
options = {}
if MODE:
    options["headers_enabled"] = True
    options["strategy"] = "fixed-window" if MODE == "http-date" else MODE
if MODE == "http-date":
    app.config["RATELIMIT_HEADER_RETRY_AFTER_VALUE"] = "http-date"
limiter = Limiter(get_remote_address, app=app, default_limits=[LIMIT], storage_uri="memory://", **options)


@app.get("/")
def answer():
    return "ok"


run_wsgi(app)
