//! What is wrong, extreme or absurd, and what becomes of it: a typed error, a panic that is
//! documented, or an answer. Nothing hangs, nothing overflows, nothing is let through for it.

mod clocks;
mod family;
mod permits;
mod policies;
mod rates;
mod times;
