#!/usr/bin/env bash
# koa-ratelimit 6.0.0 (koa 3.2.1) in memory.
#
# Guess: `X-RateLimit-Reset` is a whole number of seconds since the epoch, and a client that waits for `Retry-After` is served.
# Seen: the reset has a fraction (`1795851351.006758`), while `Retry-After` is rounded down: a client that waits for exactly that
# long is refused again, with `Retry-After: 0`. Output:
#   fraction in the reset: yes
#   retry-after: 2
#   status after 2 s: 429
#   its retry-after: 0
source "$(dirname "$0")/common.bash"
npm_install koa@3.2.1 koa-ratelimit@6.0.0
cat > server.mjs <<'JS'
import Koa from 'koa'
import ratelimit from 'koa-ratelimit'

const app = new Koa()
app.use(ratelimit({ driver: 'memory', db: new Map(), duration: 3000, max: 1, id: () => 'one' }))
app.use((context) => { context.body = 'ok' })
app.listen(Number(process.env.PORT), '127.0.0.1')
JS
serve node server.mjs
accepted=$(call)
expect 'fraction in the reset' "$([[ $(field x-ratelimit-reset <<< "$accepted") =~ ^[0-9]+\.[0-9]+$ ]] && echo yes || echo no)" yes
sleep 0.3
refusal=$(call)
wait_for=$(field retry-after <<< "$refusal")
expect retry-after "$wait_for" 2
sleep "$wait_for"
again=$(call)
expect "status after $wait_for s" "$(status <<< "$again")" 429
expect 'its retry-after' "$(field retry-after <<< "$again")" 0
