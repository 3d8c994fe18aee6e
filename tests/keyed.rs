//! A limiter for each key: the same decisions as one limiter each, in bounded memory.

#[path = "keyed/crowds.rs"]
mod crowds;
#[path = "keyed/forgetting.rs"]
mod forgetting;
#[path = "keyed/grants.rs"]
mod grants;
#[path = "keyed/lines.rs"]
mod lines;
#[path = "keyed/policies.rs"]
mod policies;
mod support;
#[cfg(feature = "tokio")]
#[path = "keyed/tasks.rs"]
mod tasks;
#[path = "keyed/twins.rs"]
mod twins;
