// koa-ratelimit. MODE: `redis`, `names` (those of its README), `throw`.
import Redis from 'ioredis'
import Koa from 'koa'
import ratelimit from 'koa-ratelimit'
import { host, limit, mode, port, redisPort, window } from './settings.mjs'

const options = { driver: 'memory', db: new Map(), duration: window * 1000, max: limit, id: (context) => context.ip }
if (mode === 'redis') Object.assign(options, { driver: 'redis', db: new Redis(redisPort, host) })
if (mode === 'names') {
  options.headers = { remaining: 'Rate-Limit-Remaining', reset: 'Rate-Limit-Reset', total: 'Rate-Limit-Total' }
}
if (mode === 'throw') options.throw = true
const app = new Koa()
app.silent = true
app.use(ratelimit(options))
app.use((context) => {
  context.body = 'ok'
})
app.listen(port, host)
