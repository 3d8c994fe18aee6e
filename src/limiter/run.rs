//! A call in one line: acquire, run, give back.

use super::{Granted, Limiter};
use crate::error::Error;

pub(crate) async fn run<L: Limiter, F: Future>(
    limiter: &L,
    n: L::Cost,
    future: F,
) -> Result<F::Output, Error> {
    let _grant = limiter.acquire(n).await?;
    Ok(future.await)
}

pub(crate) async fn run_metered<L: Limiter, F: Future>(
    limiter: &L,
    n: L::Cost,
    future: F,
    cost_of: impl FnOnce(&F::Output) -> L::Cost,
) -> Result<F::Output, Error> {
    let mut grant = limiter.acquire(n).await?.metered();
    let output = future.await;
    grant.set(cost_of(&output));
    Ok(output)
}
