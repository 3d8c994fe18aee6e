//! The server as teacher.

mod adaptive;
mod faults;
mod hostile;
mod llm;
mod loopback;
mod seen;
pub(crate) mod server;
mod simulated;
mod tables;
mod windows;
