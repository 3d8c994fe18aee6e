// micro-ratelimit. MODE: `fields`, or none of them by default.
import { createServer } from 'node:http'
import micro from 'micro'
import rateLimit from 'micro-ratelimit'
import { host, limit, mode, port, window } from './settings.mjs'

const options = { window: window * 1000, limit, headers: mode === 'fields' }
createServer(micro.serve(rateLimit(options, () => 'ok'))).listen(port, host)
