//! A caller that makes random calls to a limiter, and counts their outcomes.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{Acquire, Cost, Error, Grant, Policy, Queue, RateLimiter, Reservation, Stats};

use crate::ends::tally_of_a_try;
use crate::law::{CLOCKS, Charged};
use crate::mix::{GrantUse, Verb, choose};
use crate::random::Random;
use crate::scenario::Stage;
use crate::tally::Tally;
use crate::watched::{Left, Watched, now};

/// The permits after which a caller has done enough for one round.
const ENOUGH: usize = 10_000;

/// The most grants on their way to other callers.
const EXCHANGE: usize = 64;

/// From one pause to the next, in nanoseconds.
const PAUSES: i64 = 10_000_000;

pub(crate) struct Caller<P: Policy> {
    stage: Arc<Stage<P>>,
    chance: Random,
    /// On a thread of its own.
    blocks: bool,
    tally: Tally,
    history: Vec<Charged>,
    seen: Stats,
}

/// The times of a call: it arrived after `before`, and was queued or granted at `entered`.
#[derive(Clone, Copy)]
struct Call {
    n: u32,
    before: i64,
    entered: i64,
}

/// A grant that is still held.
pub(crate) struct Held<'a, P: Policy> {
    grant: Grant<'a, P>,
    charged: Charged,
}

impl<P: Policy> Caller<P> {
    pub(crate) fn new(stage: Arc<Stage<P>>, seed: u64, blocks: bool) -> Self {
        let (tally, seen) = (Tally::default(), Stats::default());
        Self { stage, chance: Random(seed), blocks, tally, history: Vec::new(), seen }
    }

    pub(crate) async fn live(mut self, end: Instant) -> (Tally, Vec<Charged>) {
        let mut limiter = self.stage.limiter.clone();
        while Instant::now() < end && self.history.len() < ENOUGH {
            let verb = choose(self.stage.scenario.verbs, &mut self.chance);
            if verb == Verb::Clone {
                limiter = limiter.clone();
            } else {
                self.call(verb, &limiter).await;
            }
        }
        self.let_go();
        (self.tally, self.history)
    }

    async fn call(&mut self, verb: Verb, limiter: &RateLimiter<P>) {
        let n = self.chance.cost(self.stage.scenario.most);
        let cost = (self.stage.scenario.cost)(n);
        let timeout = Duration::from_micros(self.chance.below(2_000));
        let before = now();
        let call = |entered| Call { n, before, entered };
        match verb {
            Verb::Try => {
                let result = limiter.try_acquire(cost);
                self.record(result, call(now()));
            }
            Verb::Nothing => assert!(limiter.try_acquire(P::Cost::default()).is_ok()),
            Verb::TooMuch => self.ask_too_much(limiter),
            Verb::Wait => self.wait(limiter.acquire(cost), call).await,
            Verb::WaitOwned => self.wait(limiter.acquire_owned(cost), call).await,
            Verb::WaitTimed => self.wait(limiter.try_acquire_timeout(cost, timeout), call).await,
            Verb::Leave => {
                let looks = self.chance.below(4);
                let left = self.look_and_leave(limiter.acquire(cost), call, looks).await;
                self.count(left, n, false);
            }
            Verb::LeaveTimed => {
                let looks = self.chance.below(4);
                let acquire = limiter.try_acquire_timeout(cost, timeout);
                let left = self.look_and_leave(acquire, call, looks).await;
                self.count(left, n, true);
            }
            Verb::TimeOut => {
                let left = if self.blocks {
                    self.look_and_leave(limiter.acquire(cost), call, 2).await
                } else {
                    self.time_out(limiter.acquire(cost), call, timeout).await
                };
                self.count(left, n, false);
            }
            Verb::Block if self.blocks => {
                self.let_go();
                let result = limiter.blocking_acquire(cost);
                self.record(result, call(now()));
            }
            Verb::Block => self.wait(limiter.acquire(cost), call).await,
            Verb::BlockTimed if self.blocks => {
                let result = limiter.try_acquire_timeout(cost, timeout).blocking_wait();
                self.record(result, call(now()));
            }
            Verb::BlockTimed => self.wait(limiter.try_acquire_timeout(cost, timeout), call).await,
            Verb::Reserve | Verb::ReserveLeave | Verb::ReserveDrop => match limiter.reserve(cost) {
                Err(error) => self.record(Err(error), call(now())),
                Ok(reservation) => self.use_place(verb, reservation, call).await,
            },
            Verb::TakeOver => {
                let held = std::mem::take(&mut *self.exchange());
                held.into_iter().for_each(|held| self.finish(held));
            }
            Verb::Look => self.look(limiter),
            Verb::BriefThread => self.brief_thread(),
            Verb::Change => {
                if let Some(change) = self.stage.scenario.change {
                    change(limiter, self.chance.next());
                }
            }
            Verb::Pause => self.pause(limiter, before, timeout / 2),
            Verb::Clone => unreachable!("done by the owner of the handle"),
        }
    }

    /// Waits until the grant, or until the deadline.
    async fn wait<'a, L: Queue<Grant = Grant<'a, P>>>(
        &mut self,
        acquire: Acquire<L>,
        call: impl Fn(i64) -> Call,
    ) {
        // No caller may wait for places that a waiter holds.
        if P::HELD {
            self.let_go();
        }
        let mut watched = Watched::new(acquire);
        let result = (&mut watched).await;
        self.record(result, call(watched.entered()));
    }

    /// Polls a few times, and then leaves if the call is not decided.
    async fn look_and_leave<'a, L: Queue<Grant = Grant<'a, P>>>(
        &mut self,
        acquire: Acquire<L>,
        call: impl Fn(i64) -> Call,
        looks: u64,
    ) -> Left {
        let mut watched = Watched::new(acquire);
        for _ in 0..looks {
            let look =
                |context: &mut Context<'_>| Poll::Ready(Pin::new(&mut watched).poll(context));
            if let Poll::Ready(result) = poll_fn(look).await {
                self.record(result, call(watched.entered()));
                return Left::Heard;
            }
            if self.blocks {
                thread::yield_now();
            } else {
                tokio::task::yield_now().await;
            }
        }
        watched.leave()
    }

    async fn time_out(
        &mut self,
        acquire: Acquire<&RateLimiter<P>>,
        call: impl Fn(i64) -> Call,
        timeout: Duration,
    ) -> Left {
        let mut watched = Watched::new(acquire);
        if let Ok(result) = tokio::time::timeout(timeout, &mut watched).await {
            self.record(result, call(watched.entered()));
            return Left::Heard;
        }
        watched.leave()
    }

    async fn use_place(
        &mut self,
        verb: Verb,
        place: Reservation<RateLimiter<P>>,
        call: impl Fn(i64) -> Call + Copy,
    ) {
        let Call { n, .. } = call(0);
        let _ = (place.delay(), format!("{place:?}"));
        match verb {
            Verb::Reserve => self.wait(place.wait(), call).await,
            Verb::ReserveLeave => {
                let looks = 1 + self.chance.below(3);
                let left = self.look_and_leave(place.wait(), call, looks).await;
                self.count(left, n, false);
            }
            _ => {
                drop(place);
                self.tally.blind += 1;
                self.tally.charged += u64::from(n);
            }
        }
    }

    fn count(&mut self, left: Left, n: u32, is_timed: bool) {
        match left {
            Left::NeverCame | Left::Heard => return,
            Left::Undecided => {
                self.tally.left += 1;
                return;
            }
            Left::Decided if is_timed => self.tally.undecided += 1,
            Left::Decided => self.tally.unseen += 1,
        }
        self.tally.charged += u64::from(n);
    }

    #[track_caller]
    fn record(&mut self, result: Result<Grant<'_, P>, Error>, call: Call) {
        let after = now();
        match result {
            Ok(grant) => self.take(grant, call, after),
            Err(Error::Denied { .. } | Error::QueueFull { .. }) => self.tally.refused += 1,
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn take(&mut self, grant: Grant<'_, P>, Call { n, before, entered }: Call, after: i64) {
        let waited = i64::try_from(grant.waited().as_nanos()).expect("short");
        let from = before + waited;
        // It was charged `waited` after it had joined, and no grant is returned before that.
        assert!(from <= after + CLOCKS, "granted {} ns early", from - after);
        let charged = Charged { from, until: (entered + waited).min(after).max(from), n };
        if let Some(places) = &self.stage.scenario.places {
            places.take(n);
        }
        self.tally.granted += 1;
        self.tally.waited += grant.waited();
        self.tally.charged += u64::from(n);
        self.tally.kept += i64::from(n);
        self.finish(Held { grant, charged });
    }

    /// Uses a grant at random.
    fn finish(&mut self, Held { mut grant, mut charged }: Held<'_, P>) {
        let (most, cost) = (self.stage.scenario.most, self.stage.scenario.cost);
        let n = charged.n;
        match choose(self.stage.scenario.uses, &mut self.chance) {
            GrantUse::Drop => {}
            GrantUse::HandOver => {
                let mut exchange = self.exchange();
                if exchange.len() < EXCHANGE {
                    return exchange.push(Held { grant: grant.into_owned(), charged });
                }
            }
            GrantUse::Refund => {
                self.give_back(n, None);
                grant.refund();
                return self.tally.kept -= i64::from(n);
            }
            GrantUse::SettleUp => {
                let more = n + self.chance.cost(most);
                grant.settle(cost(more)).expect("not that much");
            }
            GrantUse::SettleDown => charged.n = self.settle_down(&mut grant, n),
            GrantUse::SettleTwice => {
                let more = n + self.chance.cost(most);
                grant.settle(cost(more)).expect("not that much");
                charged.n = self.settle_down(&mut grant, n);
            }
        }
        // The excess of a settlement is owed by later callers; law 1 counts the permits asked for.
        self.history.push(charged);
        self.give_back(charged.n, None);
        drop(grant);
    }

    fn settle_down(&mut self, grant: &mut Grant<'_, P>, n: u32) -> u32 {
        let less = self.chance.cost(n) - 1;
        self.give_back(n, Some(less));
        grant.settle((self.stage.scenario.cost)(less)).expect("less is never too much");
        self.tally.kept -= i64::from(n - less);
        less
    }

    fn give_back(&self, n: u32, keep: Option<u32>) {
        if let Some(places) = &self.stage.scenario.places {
            places.give_back(n, keep);
        }
    }

    fn exchange(&self) -> MutexGuard<'_, Vec<Held<'static, P>>> {
        self.stage.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the grants on their way to other callers.
    fn let_go(&mut self) {
        let held = std::mem::take(&mut *self.exchange());
        for Held { grant, charged } in held {
            self.history.push(charged);
            self.give_back(charged.n, None);
            drop(grant);
        }
    }

    fn ask_too_much(&mut self, limiter: &RateLimiter<P>) {
        if self.stage.scenario.is_strict {
            let result = limiter.try_acquire((self.stage.scenario.cost)(u32::MAX));
            let error = result.expect_err("more than there can ever be");
            assert!(matches!(error, Error::ExceedsCapacity(_)), "{error}");
            self.tally.refused += 1;
        }
    }

    fn pause(&self, limiter: &RateLimiter<P>, now: i64, span: Duration) {
        // Without this, quick calls would pause all the time if no caller waits.
        let (next, relaxed) = (&self.stage.next_pause, Ordering::Relaxed);
        let last = next.load(relaxed);
        if last <= now && next.compare_exchange(last, now + PAUSES, relaxed, relaxed).is_ok() {
            limiter.pause_for(span);
        }
    }

    fn look(&mut self, limiter: &RateLimiter<P>) {
        let stats = limiter.stats();
        let counts = [stats.granted, stats.refused, stats.given_up];
        let before = [self.seen.granted, self.seen.refused, self.seen.given_up];
        let own = [self.tally.granted, self.tally.refused, self.tally.left];
        for ((count, before), own) in counts.into_iter().zip(before).zip(own) {
            assert!(count >= before.max(own), "{stats:?} after {:?}: {:?}", self.seen, self.tally);
        }
        assert!(stats.waited >= self.tally.waited, "{stats:?}: {:?}", self.tally);
        self.seen = stats;
        let quota = limiter.quota();
        assert!(quota.remaining.saturating_sub(quota.limit).is_zero(), "{quota:?}");
        let _ = (limiter.available(), limiter.policy(), (self.stage.scenario.show)(limiter));
        // No caller has two places.
        assert!(limiter.queue_len() < 64);
    }

    /// A thread that counts a little, and in its destructors.
    fn brief_thread(&mut self) {
        let stage = Arc::clone(&self.stage);
        let calls = self.chance.below(4);
        let brief = thread::spawn(move || {
            let mut tally = Tally::default();
            let cost = (stage.scenario.cost)(1);
            stage.with_ends(1, || {
                (0..calls).for_each(|_| tally_of_a_try(&stage.limiter, cost, 1, &mut tally));
            });
            tally
        });
        self.tally += brief.join().expect("no panic");
    }
}
