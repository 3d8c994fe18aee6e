//! The server as teacher.

mod adaptive;
mod faults;
mod hostile;
mod llm;
mod loopback;
pub(crate) mod server;
mod simulated;
mod tables;
mod windows;
