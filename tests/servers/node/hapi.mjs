// hapi-rate-limit (MODE: `user`, `path`, `userpath`) and hapi-rate-limitor (`redis`).
import Hapi from '@hapi/hapi'
import { host, limit, mode, port, redisPort, window } from './settings.mjs'

const cache = { expiresIn: window * 1000 }
const plans = {
  user: { userLimit: limit, userCache: cache, pathLimit: false },
  path: { userLimit: false, pathLimit: limit, pathCache: cache },
  userpath: { userLimit: false, pathLimit: false, userPathLimit: limit, userPathCache: cache },
}
const server = Hapi.server({ port, host })
if (mode === 'redis') {
  const { default: plugin } = await import('hapi-rate-limitor')
  await server.register({
    plugin,
    options: { redis: { host, port: redisPort }, max: limit, duration: window * 1000, namespace: 'limit' },
  })
} else {
  const { default: plugin } = await import('hapi-rate-limit')
  await server.register({ plugin: plugin.plugin ? plugin.plugin : plugin, options: plans[mode] })
}
server.route({ method: 'GET', path: '/', handler: () => 'ok' })
await server.start()
