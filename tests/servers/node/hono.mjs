// hono-rate-limiter. MODE: `draft-6`, the default, or `draft-7`.
import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { rateLimiter } from 'hono-rate-limiter'
import { host, limit, mode, port, window } from './settings.mjs'

const app = new Hono()
const fields = mode ? { standardHeaders: mode } : {}
app.use(rateLimiter({ windowMs: window * 1000, limit, keyGenerator: () => 'one', ...fields }))
app.get('/', (context) => context.text('ok'))
serve({ fetch: app.fetch, port, hostname: host })
