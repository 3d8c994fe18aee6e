//! The scripts: a policy's `.lua` file between the two halves of the driver, put together once for each
//! type of policy; and how requests for them are written and their replies read.
//!
//! A policy's file is a chunk that defines `begin`, `resume`, `ready`, `charge` and `forget`, and below
//! the line `--@ change` what only `change.lua` needs. Its first lines name the parameters, the fields
//! of the state, and whether these have a tail of variable length, which the chunk reads with `read`
//! and writes with `write`. As a part of a composed policy it is wrapped in a function that returns a
//! table of its functions. Alone, its text stands in the script unchanged; in the script for a single
//! call the bodies of short functions replace the calls, because defining and calling functions would cost as
//! much as all the rest ([`inline`]).

mod assemble;
mod chunk;
mod inline;
mod parts;
mod policies;
pub(super) mod wire;

pub use parts::Lua;
pub(super) use parts::Scripts;
pub use policies::Scripted;
