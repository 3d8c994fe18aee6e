//! Guava's `RateLimiter`: its own runs, and where `tollgate` departs from it on purpose.

mod departures;
mod traces;
