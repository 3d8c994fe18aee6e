//! What a policy of your own may need: the types in the signatures of [`Policy`](crate::Policy). States and receipts of the
//! policies of this crate are `<P as Policy>::State` and `<P as Policy>::Receipt`.

pub use super::rule::{Asked, Facts, Limit, OneRate, PolicyExt, RuleEvent};
