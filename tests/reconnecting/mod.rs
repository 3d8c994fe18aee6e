//! What a [`Reconnecting`](crate::redis::Reconnecting) does with a connection that has been idle. Unit tests of
//! `src/redis`, which includes them: here each connection has been idle for long enough.

mod idle;
mod server;
