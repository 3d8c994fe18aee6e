//! What is wrong, extreme or absurd, and what becomes of it: a typed error, a panic that is
//! documented, or an answer. Nothing hangs, nothing overflows, nothing is let through for it.

#[path = "bad_input/clocks.rs"]
mod clocks;
#[path = "bad_input/family.rs"]
mod family;
#[path = "bad_input/permits.rs"]
mod permits;
#[path = "bad_input/policies.rs"]
mod policies;
#[path = "bad_input/rates.rs"]
mod rates;
mod support;
#[path = "bad_input/times.rs"]
mod times;
