// elysia-rate-limit, with Elysia's adapter for node.
import { node } from '@elysiajs/node'
import { Elysia } from 'elysia'
import { rateLimit } from 'elysia-rate-limit'
import { host, limit, port, window } from './settings.mjs'

new Elysia({ adapter: node() })
  .use(rateLimit({ max: limit, duration: window * 1000, generator: () => 'one' }))
  .get('/', () => 'ok')
  .listen({ port, hostname: host })
