#!/usr/bin/env bash
# slowapi 0.1.10 (limits 5.8.0, fastapi 0.121.3): `X-RateLimit-Reset` with `headers_enabled`.
#
# Guess: a whole number of seconds since the epoch, at which the window ends: what `Retry-After` of the same answer says.
# Seen: a fraction, and one second later than the window's end, while `Retry-After` is right. Output, for 2 per 4 s:
#   fraction in the reset: yes
#   reset is so much later than the end of the window: 1.0
#   status at the end of the window: 200
source "$(dirname "$0")/common.bash"
pip_install fastapi==0.121.3 limits==5.8.0 slowapi==0.1.10 uvicorn==0.38.0
cat > server.py <<'PY'
import os

import uvicorn
from fastapi import FastAPI, Request, Response
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded

limiter = Limiter(key_func=lambda: "one", headers_enabled=True)
app = FastAPI()
app.state.limiter = limiter
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)


@app.get("/")
@limiter.limit("2 per 4 second")
async def answer(request: Request, response: Response):
    return "ok"


uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
PY
serve env/bin/python server.py
before=$(date +%s.%N)
accepted=$(call)
reset=$(field x-ratelimit-reset <<< "$accepted")
expect 'fraction in the reset' "$([[ $reset =~ ^[0-9]+\.[0-9]+$ ]] && echo yes || echo no)" yes
late=$(python3 -c "print(round($reset - $before - 4, 1))")
expect 'reset is so much later than the end of the window' "$late" '1.[0-4]'
call >/dev/null
expect 'status before it' "$(call | status)" 429
sleep "$(python3 -c "import time; print(max(0, $before + 4.5 - time.time()))")"
expect 'status at the end of the window' "$(call | status)" 200
