//! Waiting for a shared limiter: the future behind every method.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use super::connection::Connection;
use super::connection::reconnecting::Reconnecting;
use super::grant::RedisGrant;
use super::line::waiter::{GrantInfo, Outcome, Turn};
use super::script::Scripted;
use super::shared::SharedKey;
use crate::error::Error;
use crate::keyed::grant_or_wait::GrantOrWait;
use crate::limiter::{Acquire, Grant};
use crate::park::block_on;
use crate::policy::Cost;
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// The future of a [`RedisGrant`], returned by the methods of a [`RedisRateLimiter`](super::RedisRateLimiter).
///
/// # Cancel safety
///
/// Dropping it leaves the queue. Without a booking that is free; a booking goes to the next caller of this
/// process, or back to Redis. If the request for it is in flight, its booking goes the same way when the
/// reply comes.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::redis::{Reconnecting, RedisAcquire, RedisRateLimiter};
/// use tollgate::{Rate, SmoothBursty};
///
/// let policy = SmoothBursty::new(Rate::per_second(50.0));
/// let connection = Reconnecting::open("redis://127.0.0.1/")?;
/// let limiter = RedisRateLimiter::new(policy, connection, "quota:search");
/// let acquire: RedisAcquire<SmoothBursty, Reconnecting> = limiter.acquire(1);
/// acquire.await?;
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless they are awaited"]
pub struct RedisAcquire<P: Scripted, C: Connection = Reconnecting> {
    shared: Arc<SharedKey<P, C>>,
    cost: P::Cost,
    max_wait: Option<Duration>,
    ahead: Duration,
    /// When it came, once it has.
    arrived: Option<Nanos>,
    progress: Progress<P>,
}

enum Progress<P: Scripted> {
    Outside,
    Waiting(WaiterId),
    Over(Option<Outcome>),
    /// In the queue of the local limiter; how long it had waited before; whether Redis was away since.
    Local(Acquire<'static, P>, Duration, bool),
}

// Nothing in it is pinned.
impl<P: Scripted, C: Connection> Unpin for RedisAcquire<P, C> {}

impl<P: Scripted, C: Connection> RedisAcquire<P, C> {
    pub(super) fn new(
        shared: Arc<SharedKey<P, C>>,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Self {
        let (ahead, arrived, progress) = (Duration::ZERO, None, Progress::Outside);
        Self { shared, cost, max_wait, ahead, arrived, progress }
    }

    /// Enters the queue of this process as if this caller had come `ahead` earlier; see
    /// [`Acquire::ahead_by`](crate::Acquire::ahead_by).
    ///
    /// Callers that are [booked](super::Builder::horizon) are not overtaken, nor are those of other processes.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # async fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// limiter.acquire(1).ahead_by(Duration::from_secs(60)).await?;
    /// # Ok(()) }
    /// ```
    pub fn ahead_by(mut self, ahead: Duration) -> Self {
        self.go_ahead_by(ahead);
        self
    }

    pub(crate) fn go_ahead_by(&mut self, ahead: Duration) {
        self.ahead = ahead;
    }

    /// Joins the queue now, and waits until Redis has replied when the turn will come.
    pub(super) async fn reserved(mut self) -> Result<Self, Error> {
        if matches!(self.progress, Progress::Outside) {
            self.enter(Turn::Reserving, None);
        }
        poll_fn(|context| self.poll_reserved(context)).await?;
        Ok(self)
    }

    /// Waits on this thread, as [`blocking_acquire`](super::RedisRateLimiter::blocking_acquire) does.
    ///
    /// # Errors
    ///
    /// Those of the method that made this future.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tollgate::redis::{Reconnecting, RedisRateLimiter};
    /// # fn example(limiter: RedisRateLimiter<tollgate::TokenBucket, Reconnecting>) -> Result<(), tollgate::Error> {
    /// limiter.acquire(1).ahead_by(Duration::from_secs(60)).blocking_wait()?;
    /// # Ok(()) }
    /// ```
    pub fn blocking_wait(self) -> Result<RedisGrant<P, C>, Error> {
        block_on(self)
    }

    /// Joins the queue. `waker` is called when there is an outcome.
    fn enter(&mut self, turn: Turn, waker: Option<&Waker>) {
        if self.cost.is_zero() {
            self.progress = Progress::Over(Some(Outcome::Granted(GrantInfo::default())));
            return;
        }
        let Self { shared, cost, max_wait, ahead, arrived, progress } = self;
        // Set under the lock: if a waker or listener panics after it, this caller can still leave.
        shared.with_lock(|line, now| {
            let arrived = *arrived.get_or_insert(now);
            let (wait, waiter) = ((*max_wait, *ahead), (turn, waker.cloned()));
            *progress = match line.enter(&shared.core.context, now, arrived, *cost, wait, waiter) {
                Ok(id) => Progress::Waiting(id),
                Err(outcome) => Progress::Over(Some(outcome)),
            };
        });
    }

    /// How long until its turn, as far as is known.
    pub(super) fn delay(&self) -> Duration {
        match self.progress {
            Progress::Waiting(id) => self.shared.with_lock(|line, now| line.delay(id, now)),
            _ => Duration::ZERO,
        }
    }

    /// Ready when Redis has replied when its turn comes. An error if it never comes.
    fn poll_reserved(&mut self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        if let Progress::Waiting(id) = self.progress {
            ready!(self.poll_line(id, true, context));
        }
        Poll::Ready(match &self.progress {
            Progress::Over(Some(Outcome::Refused(error))) => Err(error.clone()),
            _ => Ok(()),
        })
    }

    fn poll_line(&mut self, id: WaiterId, reserving: bool, context: &Context<'_>) -> Poll<()> {
        loop {
            match self.shared.poll(id, (reserving, context.waker())) {
                Ok(outcome) => {
                    if outcome.is_some() {
                        self.progress = Progress::Over(outcome);
                        self.shared.taken();
                    }
                    return Poll::Ready(());
                }
                // A clock that advances by itself goes to where the queue moves.
                Err(Some(due)) if self.shared.core.context.options.clock.skip_to(due) => {}
                Err(_) => return Poll::Pending,
            }
        }
    }

    /// Redis is away: asks the local limiter.
    fn ask_local_limiter(&self, waited: Duration) -> Result<GrantOrWait<'static, P>, Error> {
        let Some(local) = &self.shared.core.local else {
            unreachable!("`Outcome::Local` needs a local limiter")
        };
        let time_left = self.max_wait.map(|wait| wait.saturating_sub(waited));
        local.grant_or_wait(&self.shared.key, self.cost, time_left, self.ahead)
    }

    fn served_locally(
        &mut self,
        answer: Result<Grant<'static, P>, Error>,
        before: Duration,
    ) -> Result<RedisGrant<P, C>, Error> {
        self.progress = Progress::Over(None);
        let shared = Arc::clone(&self.shared);
        let answer = answer.map(|grant| RedisGrant::of_local(shared, grant, before));
        if let Ok(grant) = &answer {
            self.shared.core.context.observer.granted(grant.waited(), grant.limited_by());
        }
        self.shared.count(|stats| match &answer {
            Ok(grant) => stats.grant(grant.waited()),
            Err(_) => stats.refused += 1,
        });
        answer
    }
}

impl<P: Scripted, C: Connection> Future for RedisAcquire<P, C> {
    type Output = Result<RedisGrant<P, C>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.progress {
                Progress::Outside => {
                    this.enter(Turn::New, Some(context.waker()));
                    if let Progress::Waiting(id) = this.progress
                        && !this.shared.core.context.options.clock.advances_by_itself()
                    {
                        match this.shared.outcome(id) {
                            Some(outcome) => {
                                this.progress = Progress::Over(Some(outcome));
                                this.shared.taken();
                            }
                            None => return Poll::Pending,
                        }
                    }
                }
                Progress::Waiting(id) => {
                    let id = *id;
                    ready!(this.poll_line(id, false, context));
                }
                Progress::Over(outcome) => match outcome.take() {
                    Some(Outcome::Granted(info)) => {
                        // The listener may panic: until it returns, the grant can still be given back.
                        *outcome = Some(Outcome::Granted(info));
                        this.shared.core.context.observer.granted(info.waited, info.limited_by);
                        this.progress = Progress::Over(None);
                        let shared = Arc::clone(&this.shared);
                        return Poll::Ready(Ok(RedisGrant::new(shared, this.cost, info)));
                    }
                    Some(Outcome::Refused(error)) => return Poll::Ready(Err(error)),
                    Some(Outcome::Local) => {
                        let now = this.shared.core.context.options.clock.now();
                        let waited = now.since(this.arrived.unwrap_or(now));
                        let answer = match this.ask_local_limiter(waited) {
                            Ok(GrantOrWait::Waiting(acquire)) => {
                                this.progress = Progress::Local(acquire, waited, false);
                                continue;
                            }
                            Ok(GrantOrWait::Granted(grant)) => Ok(grant),
                            Err(error) => Err(error),
                        };
                        return Poll::Ready(this.served_locally(answer, waited));
                    }
                    None => panic!("`RedisAcquire` polled after it was ready"),
                },
                Progress::Local(acquire, before, was_away) => {
                    let is_away = this.shared.is_away();
                    if *was_away && !is_away {
                        // Redis is back, and a local grant would exceed the limit of the fleet. This caller
                        // goes back to Redis. That gives its local turn to the next, so one turn brings all back.
                        this.progress = Progress::Outside;
                        continue;
                    }
                    *was_away |= is_away;
                    let answer = ready!(Pin::new(acquire).poll(context));
                    let before = *before;
                    return Poll::Ready(this.served_locally(answer, before));
                }
            }
        }
    }
}

impl<P: Scripted, C: Connection> Drop for RedisAcquire<P, C> {
    fn drop(&mut self) {
        match &self.progress {
            Progress::Waiting(id) => {
                let id = *id;
                self.shared.with_lock(|line, _| line.leave(id));
            }
            Progress::Over(Some(Outcome::Granted(info))) => {
                let (cost, booking) = (self.cost, info.booking);
                self.shared.with_lock(|line, _| line.give_back(cost, booking));
            }
            Progress::Local(..) | Progress::Over(Some(Outcome::Local)) => {
                self.shared.count(|stats| stats.given_up += 1);
            }
            _ => {}
        }
    }
}

impl<P: Scripted, C: Connection> fmt::Debug for RedisAcquire<P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisAcquire").field("cost", &self.cost).finish_non_exhaustive()
    }
}
