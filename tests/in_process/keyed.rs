//! A limiter for each key: the same decisions as one limiter each, in bounded memory.

mod crowds;
mod forgetting;
mod grants;
mod policies;
mod tasks;
mod twins;
