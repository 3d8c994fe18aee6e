//! The server as teacher.

mod faults;
mod hostile;
mod llm;
mod loopback;
mod server;
mod simulated;
mod tables;
