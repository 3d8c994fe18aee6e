// GraphQL Yoga with Envelop's limiter: a refusal is an answer with errors.
import { createServer } from 'node:http'
import { useRateLimiter } from '@envelop/rate-limiter'
import { makeExecutableSchema } from '@graphql-tools/schema'
import { createYoga } from 'graphql-yoga'
import { host, limit, port, window } from './settings.mjs'

const field = { type: 'Query', field: 'hello', max: limit, window: `${window}s`, identifyFn: () => 'one' }
const schema = makeExecutableSchema({
  typeDefs: 'type Query { hello: String }',
  resolvers: { Query: { hello: () => 'ok' } },
})
const plugins = [useRateLimiter({ identifyFn: () => 'one', configByField: [field] })]
createServer(createYoga({ schema, plugins, logging: false })).listen(port, host)
