//! A caller of a limiter over Redis.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use super::connection::Connection;
use super::grant::RedisGrant;
use super::limiter::RedisRateLimiter;
use super::line::change::Report;
use super::line::roster::{Booking, GrantInfo, Outcome, Turn};
use super::script::{Scripted, wire};
use crate::clock::Clock;
use crate::error::Error;
use crate::keyed::at_key::AtKey;
use crate::limiter::{Acquire, Ask, Limiter, Queue, sealed::Sealed};
#[cfg(feature = "metrics")]
use crate::observe;
use crate::observe::Event;
use crate::policy::{Asked, Cost, Limit, PolicyExt, Quota};
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::{End, WaiterId};

/// Where a caller stands.
#[allow(missing_debug_implementations)] // no program holds one
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

impl<P: Scripted, C: Connection> RedisRateLimiter<P, C> {
    /// Joins the queue. `waker` is called when there is an outcome. Returns whether there may be one already.
    fn enter(
        &self,
        ask: &Ask<P::Cost>,
        place: &mut RedisPlace<P>,
        (turn, waker): (Turn, Option<&Waker>),
    ) -> bool {
        let Self { shared, .. } = self;
        if ask.cost.is_zero() && !shared.end(End::IsClosed) {
            let info = GrantInfo { booking: Some(Booking::NONE), ..GrantInfo::default() };
            place.progress = Progress::Over(Some(Outcome::Granted(info)));
            return true;
        }
        // Set under the lock: if a waker or listener panics after it, this caller can still leave.
        let (is_away, is_sent) = shared.lock_and_send(|line| {
            let arrived = *place.arrived.get_or_insert(line.now());
            let (wait, waiter) = ((ask.max_wait, ask.ahead), (turn, waker.cloned()));
            let entered = line.enter(arrived, ask.cost, wait, waiter);
            let over = |outcome| Progress::Over(Some(outcome));
            place.progress = entered.map_or_else(over, Progress::Waiting);
            line.is_away()
        });
        is_away || is_sent
    }

    /// Waits for the outcome, or if `reserving` for a reply.
    fn poll_line(
        &self,
        place: &mut RedisPlace<P>,
        id: WaiterId,
        (reserving, context): (bool, &Context<'_>),
    ) -> Poll<()> {
        let clock = self.clock();
        while !self.takes_outcome(place, id) {
            let (is_over, due) = self.shared.with_lock(|line| {
                (line.roster.poll(id, reserving, context.waker()), line.moves_at())
            });
            if is_over {
                self.takes_outcome(place, id);
                break;
            }
            // A clock that advances by itself goes to where the queue moves.
            if !due.is_some_and(|due| clock.skip_to(due)) {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Takes the outcome, if there is one. It does not depend on the time, so only the line is locked. The first caller
    /// wakes those that were served with it, and the last one sends the request that has waited for them.
    fn takes_outcome(&self, place: &mut RedisPlace<P>, id: WaiterId) -> bool {
        let Self { shared, .. } = self;
        let mut line = shared.line.lock();
        line.roster.queue.wake_held_back();
        let after_unlock = line.roster.queue.after_unlock();
        let outcome = line.roster.take(id);
        let (is_taken, is_due) = (outcome.is_some(), outcome.is_some() && line.has_collected());
        if is_taken {
            place.progress = Progress::Over(outcome);
        }
        drop(line);
        after_unlock.run();
        if is_due {
            shared.with_lock(|_| ());
        }
        is_taken
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
        let Self { shared, .. } = limiter;
        let (clock, observer) = (limiter.clock(), &shared.context.observer);
        loop {
            match &mut place.progress {
                Progress::Outside => {
                    let is_known = limiter.enter(ask, place, (Turn::New, Some(context.waker())));
                    if let Progress::Waiting(id) = place.progress
                        && !clock.advances_by_itself()
                        && !(is_known && limiter.takes_outcome(place, id))
                    {
                        return Poll::Pending;
                    }
                }
                Progress::Waiting(id) => {
                    let id = *id;
                    ready!(limiter.poll_line(place, id, (false, context)));
                }
                Progress::Over(outcome) => match outcome.take() {
                    Some(Outcome::Granted(info)) => {
                        let grant = RedisGrant::new(Arc::clone(shared), ask.cost, info, None);
                        observer.granted(info.waited, info.limited_by);
                        return Poll::Ready(Ok(grant));
                    }
                    Some(Outcome::Refused(error)) => return Poll::Ready(Err(error)),
                    // Redis is away: asks the local limiter, with the time that is left.
                    Some(Outcome::Local) => {
                        let Some(local) = &shared.context.local else {
                            unreachable!("`Outcome::Local` needs a local limiter")
                        };
                        let now = clock.now();
                        let waited = now.since(place.arrived.unwrap_or(now));
                        let max_wait = ask.max_wait.map(|wait| wait.saturating_sub(waited));
                        let local = local.at(&shared.key).into_owned();
                        let acquire = Acquire::new(local, Ask { max_wait, ..*ask });
                        place.progress = Progress::Local(acquire, waited, false);
                    }
                    None => panic!("`Acquire` polled after it was ready"),
                },
                Progress::Local(acquire, before, was_away) => {
                    let is_away = shared.is_away();
                    if *was_away && !is_away && !shared.end(End::IsClosed) {
                        // Redis is back, and a local grant would exceed the limit of the fleet. This caller
                        // goes back to Redis. That gives its local turn to the next, so one turn brings all back.
                        place.progress = Progress::Outside;
                        continue;
                    }
                    *was_away |= is_away;
                    let grant = ready!(Pin::new(acquire).poll(context)).map(|grant| {
                        let waited = before.saturating_add(grant.waited());
                        let info =
                            GrantInfo { waited, limited_by: grant.limited_by(), booking: None };
                        RedisGrant::new(Arc::clone(shared), grant.cost(), info, Some(grant))
                    });
                    place.progress = Progress::Over(None);
                    if let Ok(grant) = &grant {
                        observer.granted(grant.waited(), grant.limited_by());
                    }
                    shared.count(|stats| match &grant {
                        Ok(grant) => stats.grant(grant.waited()),
                        Err(_) => stats.refused += 1,
                    });
                    return Poll::Ready(grant);
                }
            }
        }
    }

    /// Ready when Redis has replied when its turn comes. An error if it never comes.
    fn poll_enter(
        limiter: &Self,
        ask: &Ask<P::Cost>,
        place: &mut RedisPlace<P>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        if matches!(place.progress, Progress::Outside) {
            limiter.enter(ask, place, (Turn::Reserving, None));
        }
        if let Progress::Waiting(id) = place.progress {
            ready!(limiter.poll_line(place, id, (true, context)));
        }
        Poll::Ready(match &place.progress {
            Progress::Over(Some(Outcome::Refused(error))) => Err(error.clone()),
            _ => Ok(()),
        })
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
        if duration.is_zero() {
            return Ok(());
        }
        self.shared.count(|stats| stats.pauses += 1);
        self.shared.context.observer.paused(duration);
        if let Some(local) = &self.shared.context.local {
            // Redis is paused even if the local limiter has too many keys.
            let _ = local.at(&self.shared.key).pause_for(duration);
        }
        self.report(wire::pause(duration)).await.map(drop)
    }

    async fn resume(&self) -> Result<(), Error> {
        if let Some(local) = &self.shared.context.local {
            let _ = local.at(&self.shared.key).resume();
        }
        self.shared.context.observer.report(&Event::Resumed);
        self.report(vec![b'E']).await.map(drop)
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
        self.report(vec![b'X']).await.map(drop)
    }

    async fn quota(&self) -> Result<Quota<P::Cost>, Error> {
        Ok(self.inspect().await?.quota)
    }

    async fn limits(&self, cost: P::Cost) -> Result<Vec<Limit<P::Cost>>, Error> {
        let Some(Report::Limits(reports)) = self.report(wire::with_cost(b'D', cost)).await? else {
            return Err(self.lost());
        };
        let policy = self.policy();
        // What does not depend on the state is the policy's to tell.
        let now = Nanos::ZERO;
        let limits = Limit::all(&policy, &policy.idle(now), Asked::now(now, cost));
        let told = limits.into_iter().zip(reports);
        let told =
            told.map(|(limit, (remaining, more_after))| Limit { remaining, more_after, ..limit });
        Ok(told.collect())
    }

    fn end(&self, end: End<'_>) -> bool {
        self.shared.end(end)
    }

    fn queue_len(&self) -> usize {
        self.shared.with_lock(|line| line.roster.len())
    }

    fn queued_permits(&self) -> u64 {
        self.shared.with_lock(|line| line.roster.permits)
    }

    fn stats(&self) -> Stats {
        self.keys.total().0
    }

    fn clock(&self) -> &Clock {
        &self.shared.context.clock
    }

    #[cfg(feature = "metrics")]
    fn observe(&self) -> observe::Observe {
        let rate = self.policy().steady_rate();
        observe::observe(&self.keys, move |keys| {
            let (stats, waiting) = keys.total();
            let counters = *keys.context.counters.lock();
            let redis = Some([counters.requests, counters.failed, counters.without_redis]);
            observe::Observation { stats, waiting, redis, rate, ..Default::default() }
        })
    }

    fn name(&self) -> Option<&str> {
        self.shared.context.observer.name()
    }
}
