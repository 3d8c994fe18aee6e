// @fastify/under-pressure: refuses while a check of the process' health fails, here for a second of each three.
import underPressure from '@fastify/under-pressure'
import Fastify from 'fastify'
import { host, port } from './settings.mjs'

const app = Fastify()
await app.register(underPressure, {
  healthCheck: async () => Math.floor(Date.now() / 1000) % 3 !== 0,
  healthCheckInterval: 100,
})
app.get('/', async () => 'ok')
await app.listen({ port, host })
