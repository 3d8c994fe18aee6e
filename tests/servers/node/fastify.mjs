// @fastify/rate-limit. MODE: `draft`, `continue`, `backoff`, `ban`.
import rateLimit from '@fastify/rate-limit'
import Fastify from 'fastify'
import { host, limit, mode, port, window } from './settings.mjs'

const options = { max: limit, timeWindow: window * 1000 }
if (mode === 'draft') options.enableDraftSpec = true
if (mode === 'continue') options.continueExceeding = true
if (mode === 'backoff') options.exponentialBackoff = true
if (mode === 'ban') options.ban = 2
const app = Fastify()
await app.register(rateLimit, options)
app.get('/', async () => 'ok')
await app.listen({ port, host })
