//! Limits as text and from files.

mod any_text;
mod corpus;
mod policies;
mod reload;
mod round_trips;
