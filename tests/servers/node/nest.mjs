// @nestjs/throttler. MODE: `` (one, unnamed), `two` named, `block` for 15 s, `no-block`.
import 'reflect-metadata'
import { Controller, Get, Module } from '@nestjs/common'
import { APP_GUARD, NestFactory } from '@nestjs/core'
import { ThrottlerGuard, ThrottlerModule } from '@nestjs/throttler'
import { host, limit, mode, port, window } from './settings.mjs'

// Decorators without a compiler.
const decorate = (type, ...decorators) => decorators.forEach((decorator) => decorator(type))

class App {
  answer() {
    return 'ok'
  }
}
decorate(App, Controller())
Get()(App.prototype, 'answer', Object.getOwnPropertyDescriptor(App.prototype, 'answer'))

const ttl = window * 1000
const throttlers = {
  two: [
    { name: 'short', ttl, limit },
    { name: 'long', ttl: 60_000, limit: 1000 },
  ],
  block: [{ ttl, limit, blockDuration: 15_000 }],
  'no-block': [{ ttl, limit, blockDuration: 1 }],
}
class Root {}
decorate(
  Root,
  Module({
    imports: [ThrottlerModule.forRoot({ throttlers: throttlers[mode] ?? [{ ttl, limit }] })],
    controllers: [App],
    providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
  }),
)
const app = await NestFactory.create(Root, { logger: false })
await app.listen(port, host)
