// rate-limiter-flexible behind express, with the fields of its README. MODE: `wiki` (none), `block`, `queue`, `bursty`.
import express from 'express'
import { BurstyRateLimiter, RateLimiterMemory, RateLimiterQueue } from 'rate-limiter-flexible'
import { host, limit, mode, port, window } from './settings.mjs'

const memory = (options) => new RateLimiterMemory({ points: limit, duration: window, ...options })
let limiter = memory(mode === 'block' ? { blockDuration: 15 } : {})
if (mode === 'bursty') {
  limiter = new BurstyRateLimiter(
    new RateLimiterMemory({ points: 2, duration: 1 }),
    new RateLimiterMemory({ keyPrefix: 'burst', points: 5, duration: 10 }),
  )
}
const queue = mode === 'queue' ? new RateLimiterQueue(limiter, { maxQueueSize: 10 }) : null

const app = express()
app.use(async (request, response, next) => {
  const fields = (result) => {
    if (mode === 'wiki') return
    response.set({
      'Retry-After': result.msBeforeNext / 1000,
      'X-RateLimit-Limit': limit,
      'X-RateLimit-Remaining': result.remainingPoints,
      'X-RateLimit-Reset': Math.ceil((Date.now() + result.msBeforeNext) / 1000),
    })
  }
  try {
    if (queue) await queue.removeTokens(1, request.ip)
    else fields(await limiter.consume(request.ip))
  } catch (rejected) {
    if (!queue) fields(rejected)
    response.status(429).send('Too Many Requests')
    return
  }
  next()
})
app.get('/', (_, response) => response.send('ok'))
app.listen(port, host)
