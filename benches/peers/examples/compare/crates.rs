//! The limiters, each as its own documentation sets it up, on tokio's clock.
//!
//! Most rows are run in paused time: governor and ratelimit take a clock of the program, the others use tokio's.
//! governor's own futures wait by a timer of the system, which cannot be paused. So a caller of governor looks, sleeps
//! for `wait_time_from`, and looks again, as these futures do.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use governor::Quota;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use ratelimit::{Ratelimiter, TryWaitError};
use throttle_net::Throttle;
use tokio::time::{Instant, sleep};
use tollgate::{Clock, Policy, Rate, RateLimiter, TokenBucket};
use tower::buffer::Buffer;
use tower::limit::RateLimit;
use tower::{Service, ServiceExt, service_fn};

use crate::table::{Cell, Cells};

/// A permit each `each`, and at most `burst` stored. All are there at first.
#[derive(Clone, Copy)]
pub struct Limit {
    pub each: Duration,
    pub burst: u32,
}

/// One caller after the other, without a wait.
pub trait Check {
    fn check(&self, n: u32) -> bool;
}

/// Callers that wait.
pub trait Wait: Send + Sync {
    fn wait(&self, n: u32) -> Waiting<'_>;
}

pub type Waiting<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// tokio's time since the clock was made.
#[derive(Clone, Debug)]
pub struct TokioClock(Instant);

impl TokioClock {
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl governor::clock::Clock for TokioClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

impl ratelimit::Clock for TokioClock {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

pub type Governor =
    governor::RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Duration>>;

/// It follows tokio's time, as its documentation says for tests.
pub type ThrottleNet = Throttle<throttle_net::TokioClock>;

pub fn governor(quota: Quota) -> Governor {
    governor::RateLimiter::direct_with_clock(quota, TokioClock::new())
}

pub fn nonzero(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("not zero")
}

pub fn ratelimit(rate: u64, per: Duration, burst: u32, initial: u32) -> Ratelimiter<TokioClock> {
    ratelimit::Builder::with_clock(rate, TokioClock::new())
        .period(per)
        .max_tokens(burst.into())
        .initial_available(initial.into())
        .build()
        .expect("a limiter")
}

impl Limit {
    pub fn bucket(self) -> TokenBucket {
        TokenBucket::new(Rate::every(self.each), self.burst)
    }

    pub fn tollgate(self) -> RateLimiter<TokenBucket> {
        RateLimiter::with_clock(self.bucket(), Clock::tokio())
    }

    pub fn quota(self) -> Quota {
        Quota::with_period(self.each).expect("not zero").allow_burst(nonzero(self.burst))
    }

    pub fn governor(self) -> Governor {
        governor(self.quota())
    }

    /// Refilled at most each 10 ms if there is room for the tokens of that time, as its timer ticks each millisecond.
    pub fn leaky_bucket(self) -> leaky_bucket::RateLimiter {
        let refill = (10_000_000 / self.each.as_nanos()).clamp(1, self.burst.into()) as u32;
        let burst = self.burst as usize;
        leaky_bucket::RateLimiter::builder()
            .refill(refill as usize)
            .interval(self.each * refill)
            .initial(burst)
            .max(burst)
            .build()
    }

    pub fn ratelimit(self) -> Ratelimiter<TokioClock> {
        ratelimit(1, self.each, self.burst, self.burst)
    }

    pub fn throttle_net(self) -> ThrottleNet {
        let builder = Throttle::builder().rate(1, self.each).burst(self.burst);
        builder.clock(throttle_net::TokioClock::new()).try_build().expect("a limiter")
    }

    pub fn tower(self) -> RateLimit<Answering> {
        RateLimit::new(answering(), self.window())
    }

    /// tower's window of as many permits.
    fn window(self) -> tower::limit::rate::Rate {
        tower::limit::rate::Rate::new(self.burst.into(), self.each * self.burst)
    }

    pub fn checked(self) -> [Box<dyn Check>; 6] {
        [
            Box::new(self.tollgate()),
            Box::new(self.governor()),
            Box::new(self.leaky_bucket()),
            Box::new(self.ratelimit()),
            Box::new(Mutex::new(self.tower())),
            Box::new(self.throttle_net()),
        ]
    }

    pub fn waited_for(self, index: usize) -> Arc<dyn Wait> {
        match index {
            0 => Arc::new(self.tollgate()),
            1 => Arc::new(self.governor()),
            2 => Arc::new(self.leaky_bucket()),
            3 => Arc::new(self.ratelimit()),
            // A service that many callers use goes into a buffer.
            4 => Arc::new(Buffer::new(self.tower(), 1024)),
            _ => Arc::new(self.throttle_net()),
        }
    }

    /// `limiter` when it has no permits left.
    async fn drained(self, limiter: Arc<dyn Wait>) -> Arc<dyn Wait> {
        for _ in 0..self.burst {
            limiter.wait(1).await;
        }
        limiter
    }
}

pub type Answering = tower::util::ServiceFn<fn(()) -> Ready<Result<(), Infallible>>>;

pub fn answering() -> Answering {
    service_fn(|()| ready(Ok(())))
}

impl<P: Policy<Cost = u32>> Check for RateLimiter<P> {
    fn check(&self, n: u32) -> bool {
        self.try_acquire(n).is_ok()
    }
}

impl<C: governor::clock::Clock> Check
    for governor::RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>
{
    fn check(&self, n: u32) -> bool {
        matches!(self.check_n(nonzero(n)), Ok(Ok(())))
    }
}

impl Check for leaky_bucket::RateLimiter {
    fn check(&self, n: u32) -> bool {
        self.try_acquire(n as usize)
    }
}

impl<C: ratelimit::Clock> Check for Ratelimiter<C> {
    fn check(&self, n: u32) -> bool {
        self.try_wait_n(n.into()).is_ok()
    }
}

impl Check for ThrottleNet {
    fn check(&self, n: u32) -> bool {
        self.try_acquire_with_cost(n)
    }
}

/// A call, if the service is ready for it.
impl<S: Service<(), Error: std::fmt::Debug>> Check for Mutex<S> {
    fn check(&self, n: u32) -> bool {
        assert_eq!(n, 1, "a call of tower takes one permit");
        let mut service = self.lock().expect("no panic");
        let ready = service.poll_ready(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(Ok(())) = ready {
            drop(service.call(()));
        }
        ready.is_ready()
    }
}

impl Wait for RateLimiter<TokenBucket> {
    fn wait(&self, n: u32) -> Waiting<'_> {
        Box::pin(async move { drop(self.acquire(n).await.expect("a grant")) })
    }
}

impl Wait for Governor {
    fn wait(&self, n: u32) -> Waiting<'_> {
        Box::pin(async move {
            while let Err(not_until) = self.check_n(nonzero(n)).expect("within the burst") {
                sleep(not_until.wait_time_from(governor::clock::Clock::now(self.clock()))).await;
            }
        })
    }
}

impl Wait for governor::DefaultDirectRateLimiter {
    fn wait(&self, n: u32) -> Waiting<'_> {
        Box::pin(async move { self.until_n_ready(nonzero(n)).await.expect("within the burst") })
    }
}

impl Wait for leaky_bucket::RateLimiter {
    fn wait(&self, n: u32) -> Waiting<'_> {
        Box::pin(self.acquire(n as usize))
    }
}

impl Wait for Ratelimiter<TokioClock> {
    fn wait(&self, n: u32) -> Waiting<'_> {
        Box::pin(async move {
            while let Err(error) = self.try_wait_n(n.into()) {
                match error {
                    TryWaitError::Insufficient(wait) => sleep(wait).await,
                    error => panic!("{error}"),
                }
            }
        })
    }
}

impl Wait for ThrottleNet {
    fn wait(&self, n: u32) -> Waiting<'_> {
        Box::pin(async move { self.acquire_with_cost(n).await.expect("within the burst") })
    }
}

impl Wait for Buffer<(), Ready<Result<(), Infallible>>> {
    fn wait(&self, n: u32) -> Waiting<'_> {
        assert_eq!(n, 1, "a call of tower takes one permit");
        let mut service = self.clone();
        Box::pin(async move {
            service.ready().await.expect("open").call(()).await.expect("an answer");
        })
    }
}

/// A runtime whose clock stands still while a task runs, and skips time in which all of them wait.
pub fn paused<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(future)
}

/// What `scenario` sees of each limiter. They have all their permits.
pub fn each_checked(limit: Limit, scenario: impl AsyncFn(&dyn Check) -> u32) -> Cells {
    std::array::from_fn(|index| paused(async { scenario(&*limit.checked()[index]).await.into() }))
}

/// The same of a policy of ours.
pub fn ours(policy: impl Policy<Cost = u32>, scenario: impl AsyncFn(&dyn Check) -> u32) -> u32 {
    paused(async { scenario(&RateLimiter::with_clock(policy, Clock::tokio())).await })
}

/// The same of limiters that have no permits left. `many`: a call takes several, which one of tower cannot.
pub fn each_waited_for(
    limit: Limit,
    many: bool,
    scenario: impl AsyncFn(Arc<dyn Wait>) -> Cell,
) -> Cells {
    std::array::from_fn(|index| match index {
        4 if many => Cell::absent(),
        _ => paused(async { scenario(limit.drained(limit.waited_for(index)).await).await }),
    })
}

/// The same in real time, with ours by the system's clock and governor by its own futures.
pub fn each_in_real_time(
    limit: Limit,
    many: bool,
    scenario: impl AsyncFn(Arc<dyn Wait>) -> Cell,
) -> Cells {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    std::array::from_fn(|index| match index {
        4 if many => Cell::absent(),
        _ => runtime.block_on(async {
            let limiter: Arc<dyn Wait> = match index {
                0 => Arc::new(RateLimiter::new(limit.bucket())),
                1 => Arc::new(governor::RateLimiter::direct(limit.quota())),
                _ => limit.waited_for(index),
            };
            scenario(limit.drained(limiter).await).await
        }),
    })
}
