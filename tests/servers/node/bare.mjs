// A window of node's own `http`, from the first call on. MODE: `429` or `503`, without any field; `closest`: two policies
// of the IETF's draft, of which only the closest is sent.
import { createServer } from 'node:http'
import { host, limit, mode, port, window } from './settings.mjs'

const policies = [{ name: 'short', limit, window }]
if (mode === 'closest') policies.push({ name: 'long', limit: 20, window: 60 })
for (const policy of policies) Object.assign(policy, { used: 0, end: 0 })

createServer((_, response) => {
  const now = performance.now() / 1000
  for (const policy of policies) {
    if (now >= policy.end) Object.assign(policy, { used: 0, end: now + policy.window })
  }
  const isRefused = policies.some((policy) => policy.used >= policy.limit)
  if (!isRefused) for (const policy of policies) policy.used += 1
  if (mode === 'closest') {
    const left = (policy) => policy.limit - policy.used
    const closest = policies.reduce((one, other) => (left(other) < left(one) ? other : one))
    const { name, limit, window, end } = closest
    response.setHeader('RateLimit-Policy', `"${name}";q=${limit};w=${window}`)
    response.setHeader('RateLimit', `"${name}";r=${left(closest)};t=${Math.ceil(end - now)}`)
  }
  response.statusCode = isRefused ? Number(mode) || 429 : 200
  response.end(isRefused ? 'no\n' : 'ok\n')
}).listen(port, host)
