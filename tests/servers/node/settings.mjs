// What all servers are told by the environment.
export const port = Number(process.env.PORT)
export const host = '127.0.0.1'
export const limit = Number(process.env.LIMIT ?? 20)
// In seconds.
export const window = Number(process.env.WINDOW ?? 10)
export const mode = process.env.MODE ?? ''
export const redisPort = Number(process.env.PORT2)
