// graphql-rate-limit behind graphql-http: a refusal is a 200 with errors.
import { createServer } from 'node:http'
import { GraphQLObjectType, GraphQLSchema, GraphQLString } from 'graphql'
import { createHandler } from 'graphql-http/lib/use/http'
import limits from 'graphql-rate-limit'
import { host, limit, port, window } from './settings.mjs'

const limiter = limits.getGraphQLRateLimiter({ identifyContext: () => 'one' })
const query = new GraphQLObjectType({
  name: 'Query',
  fields: {
    hello: {
      type: GraphQLString,
      resolve: async (parent, args, context, info) => {
        const error = await limiter({ parent, args, context, info }, { max: limit, window: `${window}s` })
        if (error) throw new Error(error)
        return 'ok'
      },
    },
  },
})
createServer(createHandler({ schema: new GraphQLSchema({ query }) })).listen(port, host)
