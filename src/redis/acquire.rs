//! A caller of a limiter over Redis.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use super::connection::Connection;
use super::grant::RedisGrant;
use super::limiter::RedisRateLimiter;
use super::line::waiter::{Booking, GrantInfo, Outcome, Turn};
use super::script::Scripted;
use super::shared::SharedKey;
use crate::clock::Clock;
use crate::error::Error;
use crate::keyed::at_key::AtKey;
use crate::limiter::{Acquire, Ask, Limiter, Queue, Reservation, sealed::Sealed};
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::policy::{Cost, Limit, PolicyExt, Quota};
use crate::rate_limiter::Grant;
use crate::stats::{Stats, Waits};
use crate::units::Nanos;
use crate::wait_queue::{End, WaiterId};

/// Where a caller stands.
#[allow(missing_debug_implementations)] // nobody holds one
pub struct RedisPlace<P: Scripted> {
    /// The time of the first poll.
    arrived: Option<Nanos>,
    progress: Progress<P>,
}

enum Progress<P: Scripted> {
    Outside,
    Waiting(WaiterId),
    Over(Option<Outcome>),
    /// In the queue of the local limiter; how long it had waited before; whether Redis was away since.
    Local(Acquire<AtKey<'static, 'static, Arc<str>, P>>, Duration, bool),
}

impl<P: Scripted> Default for RedisPlace<P> {
    fn default() -> Self {
        Self { arrived: None, progress: Progress::Outside }
    }
}

/// A caller, and the limiter that it stands at.
struct Caller<'a, P: Scripted, C: Connection> {
    shared: &'a Arc<SharedKey<P, C>>,
    ask: &'a Ask<P::Cost>,
    place: &'a mut RedisPlace<P>,
}

impl<P: Scripted, C: Connection> Caller<'_, P, C> {
    /// Joins the queue. `waker` is called when there is an outcome.
    fn enter(&mut self, turn: Turn, waker: Option<&Waker>) {
        if self.ask.cost.is_zero() && !self.shared.end(End::IsClosed) {
            let info = GrantInfo { booking: Some(Booking::NONE), ..GrantInfo::default() };
            self.place.progress = Progress::Over(Some(Outcome::Granted(info)));
            return;
        }
        let Self { shared, ask: Ask { cost, max_wait, ahead, .. }, place } = self;
        let RedisPlace { arrived, progress } = &mut **place;
        // Set under the lock: if a waker or listener panics after it, this caller can still leave.
        shared.with_lock(|line| {
            let arrived = *arrived.get_or_insert(line.now());
            let (wait, waiter) = ((*max_wait, *ahead), (turn, waker.cloned()));
            *progress = match line.enter(arrived, *cost, wait, waiter) {
                Ok(id) => Progress::Waiting(id),
                Err(outcome) => Progress::Over(Some(outcome)),
            };
        });
    }

    /// Ready when Redis has replied when its turn comes. An error if it never comes.
    fn poll_reserved(&mut self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        if let Progress::Waiting(id) = self.place.progress {
            ready!(self.poll_line(id, true, context));
        }
        Poll::Ready(match &self.place.progress {
            Progress::Over(Some(Outcome::Refused(error))) => Err(error.clone()),
            _ => Ok(()),
        })
    }

    fn poll_line(&mut self, id: WaiterId, reserving: bool, context: &Context<'_>) -> Poll<()> {
        let clock = &self.shared.core.context.options.clock;
        while !self.takes_outcome(id) {
            match self.shared.with_lock(|line| line.poll(id, (reserving, context.waker()))) {
                Ok(()) => {
                    self.takes_outcome(id);
                    break;
                }
                // A clock that advances by itself goes to where the queue moves.
                Err(Some(due)) if clock.skip_to(due) => {}
                Err(_) => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    /// Takes the outcome, if there is one. Under a lock of its own, because it would be lost if a listener panicked.
    fn takes_outcome(&mut self, id: WaiterId) -> bool {
        let Some((outcome, is_due)) = self.shared.outcome(id) else { return false };
        self.place.progress = Progress::Over(Some(outcome));
        if is_due {
            self.shared.with_lock(|_| ());
        }
        true
    }

    /// Redis is away: asks the local limiter.
    fn ask_local_limiter(&self, waited: Duration) -> Acquire<AtKey<'static, 'static, Arc<str>, P>> {
        let Some(local) = &self.shared.core.local else {
            unreachable!("`Outcome::Local` needs a local limiter")
        };
        Acquire::new(local.at(&self.shared.key).into_owned(), self.local_ask(waited))
    }

    /// With the time that is left.
    fn local_ask(&self, waited: Duration) -> Ask<P::Cost> {
        let max_wait = self.ask.max_wait.map(|wait| wait.saturating_sub(waited));
        Ask { max_wait, ..*self.ask }
    }

    fn served_locally(
        &mut self,
        answer: Result<Grant<'static, P>, Error>,
        before: Duration,
    ) -> Result<RedisGrant<P, C>, Error> {
        self.place.progress = Progress::Over(None);
        let shared = Arc::clone(self.shared);
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

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<RedisGrant<P, C>, Error>> {
        let this = self;
        loop {
            match &mut this.place.progress {
                Progress::Outside => {
                    this.enter(Turn::New, Some(context.waker()));
                    if let Progress::Waiting(id) = this.place.progress
                        && !this.shared.core.context.options.clock.advances_by_itself()
                        && !this.takes_outcome(id)
                    {
                        return Poll::Pending;
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
                        this.place.progress = Progress::Over(None);
                        let shared = Arc::clone(this.shared);
                        return Poll::Ready(Ok(RedisGrant::new(shared, this.ask.cost, info)));
                    }
                    Some(Outcome::Refused(error)) => return Poll::Ready(Err(error)),
                    Some(Outcome::Local) => {
                        let now = this.shared.core.context.options.clock.now();
                        let waited = now.since(this.place.arrived.unwrap_or(now));
                        let acquire = this.ask_local_limiter(waited);
                        this.place.progress = Progress::Local(acquire, waited, false);
                    }
                    None => panic!("`Acquire` polled after it was ready"),
                },
                Progress::Local(acquire, before, was_away) => {
                    let is_away = this.shared.is_away();
                    if *was_away && !is_away && !this.shared.end(End::IsClosed) {
                        // Redis is back, and a local grant would exceed the limit of the fleet. This caller
                        // goes back to Redis. That gives its local turn to the next, so one turn brings all back.
                        this.place.progress = Progress::Outside;
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

impl<P: Scripted, C: Connection> RedisRateLimiter<P, C> {
    fn caller<'a>(
        &'a self,
        ask: &'a Ask<P::Cost>,
        place: &'a mut RedisPlace<P>,
    ) -> Caller<'a, P, C> {
        Caller { shared: &self.shared, ask, place }
    }
}

impl<P: Scripted, C: Connection> Sealed for RedisRateLimiter<P, C> {}

impl<P: Scripted, C: Connection> Queue for RedisRateLimiter<P, C> {
    type Cost = P::Cost;
    type Grant = RedisGrant<P, C>;
    type Place = RedisPlace<P>;
    type Owned = Self;

    fn poll_acquire(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut RedisPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<RedisGrant<P, C>, Error>> {
        limiter.caller(ask, place).poll(context)
    }

    fn poll_enter(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut RedisPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let mut caller = limiter.caller(ask, place);
        if matches!(caller.place.progress, Progress::Outside) {
            caller.enter(Turn::Reserving, None);
        }
        caller.poll_reserved(context)
    }

    fn leave(limiter: &Self, ask: &Ask<P::Cost>, place: &mut RedisPlace<P>) {
        let Self { shared, .. } = limiter;
        match &place.progress {
            Progress::Waiting(id) => {
                let id = *id;
                shared.with_lock(|line| line.leave(id));
            }
            Progress::Over(Some(Outcome::Granted(info))) => {
                let booking = info.booking;
                shared.with_lock(|line| line.give_back(ask.cost, booking));
            }
            Progress::Local(..) | Progress::Over(Some(Outcome::Local)) => {
                shared.count(|stats| stats.given_up += 1);
            }
            _ => {}
        }
    }

    fn delay(limiter: &Self, place: &RedisPlace<P>) -> Duration {
        match place.progress {
            Progress::Waiting(id) => limiter.shared.with_lock(|line| line.delay(id)),
            _ => Duration::ZERO,
        }
    }

    fn into_owned(limiter: &Self, ask: &Ask<P::Cost>, place: RedisPlace<P>) -> Acquire<Self> {
        Acquire::at(limiter.clone(), *ask, place)
    }
}

impl<P: Scripted, C: Connection> Limiter for RedisRateLimiter<P, C> {
    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.pause_for(duration).await
    }

    async fn resume(&self) -> Result<(), Error> {
        self.resume().await
    }

    async fn would_wait(&self, n: P::Cost) -> Result<Option<Duration>, Error> {
        if n.is_zero() {
            return Ok(Some(Duration::ZERO));
        }
        let policy = self.policy();
        policy.ready_at(&policy.idle(Nanos::ZERO), Nanos::ZERO, n)?;
        // The limits of a tuple are told together.
        if self.queue_len() == 0 && P::Cost::NUMBERS == 1 {
            return Ok(Limit::wait(&self.limits(n).await?, n));
        }
        let missing = n.saturating_sub(self.quota().await?.remaining);
        let delay = match self.reserve(n).await {
            // There is no wait for a place.
            Err(Error::QueueFull { .. }) => return Ok(None),
            place => place?.delay(),
        };
        // Without a delay it is granted, or nothing is known.
        Ok((missing.is_zero() || !delay.is_zero()).then_some(delay))
    }

    async fn reset(&self) -> Result<(), Error> {
        self.reset().await
    }

    async fn quota(&self) -> Result<Quota<P::Cost>, Error> {
        self.quota().await
    }

    async fn limits(&self, cost: P::Cost) -> Result<Vec<Limit<P::Cost>>, Error> {
        self.limits(cost).await
    }

    fn end(&self, end: End<'_>) -> bool {
        self.shared.end(end)
    }

    fn queue_len(&self) -> usize {
        self.queue_len()
    }

    fn queued_permits(&self) -> u64 {
        self.shared.with_lock(|line| line.queued_permits())
    }

    fn stats(&self) -> Stats {
        self.stats()
    }

    fn waits(&self) -> Waits {
        self.waits()
    }

    fn clock(&self) -> &Clock {
        self.clock()
    }

    #[cfg(feature = "metrics")]
    fn observe(&self) -> Observe {
        self.observe()
    }

    fn name(&self) -> Option<&str> {
        self.name()
    }
}

impl<P: Scripted, C: Connection> Acquire<RedisRateLimiter<P, C>> {
    /// Joins the queue without waiting for the grant; see [`Acquire::enter`].
    ///
    /// # Errors
    ///
    /// Those of the method that made this future.
    pub async fn reserve(self) -> Result<Reservation<RedisRateLimiter<P, C>>, Error> {
        self.enter().await
    }
}
