//! Adaptive rates, for unknown quotas: see [`Adaptive`].

mod builder;
mod call;
mod control;
mod limiter;
mod retry;

pub use builder::AdaptiveBuilder;
pub use call::Call;
pub use control::Algorithm;
pub use limiter::Adaptive;
pub use retry::RetryBudget;
