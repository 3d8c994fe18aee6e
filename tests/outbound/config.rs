//! Limits as text and from files.

#[cfg(all(feature = "feedback", feature = "redis", feature = "tower"))]
mod any_text;
mod corpus;
mod policies;
mod reload;
mod round_trips;
