#!/usr/bin/env bash
# @envelop/rate-limiter 10.2.1 with graphql-yoga 5.24.1: the limiter sets `Retry-After` itself.
#
# Guess: a number of seconds, as RFC 9110 asks for: `Retry-After: 10`.
# Seen: `retry-after: 10s`, with a unit, on an answer whose status is 200. A client that reads a number or a date by the RFC finds
# neither, and one that looks for the field on 429 and 503 only never sees it. Output:
#   status: 200
#   retry-after: 10s
source "$(dirname "$0")/common.bash"
npm_install @envelop/rate-limiter@10.2.1 @graphql-tools/schema@10.0.31 graphql@16.12.0 graphql-yoga@5.24.1
cat > server.mjs <<'JS'
import { createServer } from 'node:http'
import { useRateLimiter } from '@envelop/rate-limiter'
import { makeExecutableSchema } from '@graphql-tools/schema'
import { createYoga } from 'graphql-yoga'

const schema = makeExecutableSchema({
  typeDefs: 'type Query { hello: String }',
  resolvers: { Query: { hello: () => 'ok' } },
})
const field = { type: 'Query', field: 'hello', max: 1, window: '10s', identifyFn: () => 'one' }
const plugins = [useRateLimiter({ identifyFn: () => 'one', configByField: [field] })]
createServer(createYoga({ schema, plugins, logging: false })).listen(Number(process.env.PORT), '127.0.0.1')
JS
serve node server.mjs
path=/graphql
hello() { call --header 'content-type: application/json' --data '{"query":"{ hello }"}'; }
[[ $(hello) == *'"hello":"ok"'* ]]
refusal=$(hello)
[[ $refusal == *'"errors"'* ]]
expect status "$(status <<< "$refusal")" 200
expect retry-after "$(field retry-after <<< "$refusal")" 10s
