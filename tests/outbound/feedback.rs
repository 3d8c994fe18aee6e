//! The server as teacher.

mod hostile;
mod loopback;
mod server;
mod simulated;
mod tables;
