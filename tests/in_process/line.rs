//! The queue: which callers are granted, and when, while others wait. All on a manual clock, so
//! every time here is exact.

mod ahead;
mod bounds;
mod counts;
mod order;
mod overtaken;
mod tenants;
