//! The server as teacher.

mod adaptive;
mod faults;
mod hostile;
mod llm;
mod seen;
mod server;
mod simulated;
mod tables;
mod windows;
