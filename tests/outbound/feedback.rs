//! The server as teacher.

mod hostile;
mod server;
mod simulated;
mod tables;
