#!/usr/bin/env bash
# @nestjs/throttler 6.7.1 (@nestjs/core 11.1.9) with a named throttler.
#
# Guess: the 429 has `Retry-After`, and what it says is what is left of the window: two calls in 4 s, the third after 2 s: 2.
# Seen: it has only `Retry-After-short`, a field that no client knows, and the refusal starts a block of the whole `ttl`: 4 anew,
# though the option `blockDuration` is not set. Output:
#   retry-after:
#   retry-after-short: 4
#   status at the end of the window: 429
source "$(dirname "$0")/common.bash"
npm_install @nestjs/common@11.1.9 @nestjs/core@11.1.9 @nestjs/platform-express@11.1.9 @nestjs/throttler@6.7.1 \
    reflect-metadata@0.2.2 rxjs@7.8.2
cat > server.mjs <<'JS'
import 'reflect-metadata'
import { Controller, Get, Module } from '@nestjs/common'
import { APP_GUARD, NestFactory } from '@nestjs/core'
import { ThrottlerGuard, ThrottlerModule } from '@nestjs/throttler'

class App { answer() { return 'ok' } }
Controller()(App)
Get()(App.prototype, 'answer', Object.getOwnPropertyDescriptor(App.prototype, 'answer'))
class Root {}
Module({
  imports: [ThrottlerModule.forRoot({ throttlers: [{ name: 'short', ttl: 4000, limit: 2 }] })],
  controllers: [App],
  providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
})(Root)
const app = await NestFactory.create(Root, { logger: false })
await app.listen(Number(process.env.PORT), '127.0.0.1')
JS
serve node server.mjs
call >/dev/null
call >/dev/null
sleep 2
refusal=$(call)
[[ $(status <<< "$refusal") == 429 ]]
expect retry-after "$(field retry-after <<< "$refusal")" ''
expect retry-after-short "$(field retry-after-short <<< "$refusal")" 4
sleep 2.5
expect 'status at the end of the window' "$(call | status)" 429
