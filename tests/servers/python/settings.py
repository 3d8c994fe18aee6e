"""What all servers are told by the environment."""

import os

PORT = int(os.environ["PORT"])
PORT2 = int(os.environ["PORT2"])
HOST = "127.0.0.1"
LIMIT = os.environ.get("LIMIT", "20 per 10 second")
MODE = os.environ.get("MODE", "")
COUNT = int(os.environ.get("COUNT", "20"))
SECONDS = int(os.environ.get("SECONDS", "10"))


def run_asgi(app):
    import uvicorn

    uvicorn.run(app, host=HOST, port=PORT, log_level="warning")


def run_wsgi(app):
    import waitress

    waitress.serve(app, host=HOST, port=PORT, threads=16)
