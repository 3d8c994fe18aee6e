//! The server as teacher.

mod faults;
mod hostile;
mod loopback;
mod server;
mod simulated;
mod tables;
