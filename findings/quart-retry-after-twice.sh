#!/usr/bin/env bash
# quart-rate-limiter 0.12.1 (quart 0.22.0): its fields on a refusal.
#
# Guess: one `Retry-After`, equal to `RateLimit-Reset`, the seconds to the end of the window.
# Seen: `Retry-After` twice, and `RateLimit-Reset` says something else: it is a bucket, `Retry-After` is the time to the next
# permit and the reset the time until all are back. Output, for 2 per 10 s:
#   reset after one call: 5
#   retry-after: 5 5
#   reset of the refusal: 10
source "$(dirname "$0")/common.bash"
pip_install hypercorn==0.18.0 quart==0.22.0 quart-rate-limiter==0.12.1
cat > server.py <<'PY'
import os
from datetime import timedelta

from quart import Quart
from quart_rate_limiter import RateLimiter, rate_limit

app = Quart(__name__)
RateLimiter(app)


@app.get("/")
@rate_limit(2, timedelta(seconds=10))
async def answer():
    return "ok"


app.run(host="127.0.0.1", port=int(os.environ["PORT"]))
PY
serve env/bin/python server.py
first=$(call)
expect 'reset after one call' "$(field ratelimit-reset <<< "$first")" '[45]'
call >/dev/null
refusal=$(call)
[[ $(status <<< "$refusal") == 429 ]]
expect retry-after "$(field retry-after <<< "$refusal")" '[45] [45]'
expect 'reset of the refusal' "$(field ratelimit-reset <<< "$refusal")" '@(9|10)'
