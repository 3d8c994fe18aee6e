// express-rate-limit and express-slow-down. MODE: the fields, `slow`, `slow-FIELDS`, or `two-FIELDS` with a looser limit.
import express from 'express'
import { rateLimit } from 'express-rate-limit'
import { slowDown } from 'express-slow-down'
import { host, limit, mode, port, window } from './settings.mjs'

// `legacy` or nothing: what it sends by default.
const fields = (draft) => (draft.startsWith('draft') ? { standardHeaders: draft, legacyHeaders: false } : {})

const app = express()
const windowMs = window * 1000
if (mode === 'slow') {
  app.use(slowDown({ windowMs, delayAfter: limit }))
} else if (mode.startsWith('slow-')) {
  const draft = mode.slice(5)
  const shown = draft === 'legacy' ? { legacyHeaders: true } : { standardHeaders: draft }
  app.use(slowDown({ windowMs, delayAfter: limit, ...shown }))
} else if (mode.startsWith('two-')) {
  const shown = fields(mode.slice(4))
  app.use(rateLimit({ windowMs: 60_000, limit: 5 * limit, identifier: 'minute', ...shown }))
  app.use(rateLimit({ windowMs, limit, identifier: 'short', ...shown }))
} else if (mode === 'none') {
  app.use(rateLimit({ windowMs, limit, standardHeaders: false, legacyHeaders: false }))
} else {
  app.use(rateLimit({ windowMs, limit, ...fields(mode) }))
}
app.get('/', (_, response) => response.send('ok'))
app.listen(port, host)
