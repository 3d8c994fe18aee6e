#!/usr/bin/env bash
# express-slow-down 3.1.1 (express 5.3.0) with `standardHeaders: 'draft-6'`: slower after five calls, never refused.
#
# Guess: the limit is `delayAfter`, and what remains counts down from it: after one call `RateLimit-Limit: 5`,
# `RateLimit-Remaining: 4`, and no `Retry-After`, as nothing is refused.
# Seen: on the first call, accepted at once, a limit of 0, 0 remaining, and `Retry-After` of the whole window. A client that obeys
# never calls twice in a window. Output:
#   status: 200
#   limit: 0
#   remaining: 0
#   retry-after: 10
source "$(dirname "$0")/common.bash"
npm_install express@5.3.0 express-slow-down@3.1.1
cat > server.mjs <<'JS'
import express from 'express'
import { slowDown } from 'express-slow-down'

const app = express()
app.use(slowDown({ windowMs: 10_000, delayAfter: 5, standardHeaders: 'draft-6' }))
app.get('/', (_, response) => response.send('ok'))
app.listen(Number(process.env.PORT), '127.0.0.1')
JS
serve node server.mjs
first=$(call)
expect status "$(status <<< "$first")" 200
expect limit "$(field ratelimit-limit <<< "$first")" 0
expect remaining "$(field ratelimit-remaining <<< "$first")" 0
expect retry-after "$(field retry-after <<< "$first")" 10
