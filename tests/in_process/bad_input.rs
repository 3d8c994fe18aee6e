//! Wrong, extreme or absurd input gets a typed error, a documented panic, or an answer. Nothing
//! hangs, nothing overflows, and nothing extra is granted.

mod clocks;
mod family;
mod permits;
mod policies;
mod rates;
mod times;
