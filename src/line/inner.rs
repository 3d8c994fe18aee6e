//! What the mutex of a line guards: the state, the waiters, and the order of grants.
//!
//! [`decide`] decides about a caller that stands behind no other, as the word does for rates. [`Inner::enter`] takes each new caller that
//! `Line::decide` left open: decided, or told why it cannot wait, or put into the queue. [`Inner::pump`] charges the waiters in their order, each as
//! of the time at which it was ready.

use std::task::Waker;
use std::time::Duration;

use super::word::{Published, Word};
use crate::clock::Monotone;
use crate::error::{Error, ExceedsCapacity};
use crate::part::Part;
use crate::policy::{Asked, Cost, Limit, Policy, PolicyExt, Quota, Ready, RuleEvent};
use crate::stats::Stats;
use crate::units::{Nanos, saturating_nanos};
use crate::unwinding::DropApart;
use crate::wait_queue::{Arrival, Ask, Bounds, End, Place, Tenant, WaitQueue, WaiterId, Waits};

/// A decision counts this many waiters at most, one by one, so that no call takes long: behind more of them it takes a caller
/// for earlier than it is.
const MOST: usize = 128;

/// Permits that were charged.
#[derive(Clone, Debug)]
pub struct Charge<R> {
    /// In nanoseconds: to make a `Duration` of each would take longer than to decide.
    pub(crate) waited: u64,
    /// `None` for a cost of zero.
    pub(crate) receipt: Option<R>,
    /// Which of several rules the line waited for last.
    pub(crate) limited_by: Option<Part>,
}

impl<R> Charge<R> {
    /// Of a caller that did not wait.
    #[inline(always)]
    pub(crate) fn at_once(receipt: Option<R>) -> Self {
        Self { waited: 0, receipt, limited_by: None }
    }

    /// Moves the charge out; without a receipt nothing is left to give back.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Self {
        Self { receipt: self.receipt.take(), ..*self }
    }
}

/// How a charge changes later.
#[derive(Debug)]
pub(crate) struct Change<P: Policy> {
    /// Is charged.
    pub(crate) more: P::Cost,
    /// Is given back at the price that was paid.
    pub(crate) part: P::Cost,
    /// The places in flight that are given back.
    pub(crate) less: P::Cost,
    pub(crate) receipt: Option<P::Receipt>,
}

impl<P: Policy> Change<P> {
    /// Gives back `part`, and the places of `held`.
    pub(crate) fn back(part: P::Cost, held: P::Cost, receipt: Option<P::Receipt>) -> Self {
        Self { more: P::Cost::default(), part, less: held, receipt }
    }
}

/// Where a caller of a line stands.
#[allow(missing_debug_implementations)] // no program holds one
#[derive(Default)]
pub enum Caller<P: Policy> {
    #[default]
    Outside,
    Waiting(WaiterId),
    Granted(Charge<P::Receipt>),
    Over,
}

/// A grant or a refusal.
pub(crate) type Outcome<P> = Result<Charge<<P as Policy>::Receipt>, Error>;

/// `None`: not decided; the caller may have to wait.
pub(crate) type Decided<P> = Option<Outcome<P>>;

/// Decides a call by the state alone: no caller waits ahead of it, nothing is paused, and the cost is not zero.
#[inline(always)]
pub(crate) fn decide<P: Policy>(
    policy: &P,
    state: &mut P::State,
    now: Nanos,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Decided<P> {
    if policy.is_ready(state, now, cost) {
        return Some(Ok(Charge::at_once(Some(policy.charge(state, now, cost)))));
    }
    refuse(policy, state, now, cost, max_wait).map(Err)
}

/// Whether the timeout of a caller is over before `due`.
// Zero first: `try_acquire` is compiled without the comparison then.
#[inline(always)]
pub(crate) fn is_too_late(max_wait: Option<Duration>, due: Nanos, now: Nanos) -> bool {
    max_wait.is_some_and(|wait| wait.is_zero() || due > now.saturating_add(wait))
}

/// The error of a caller that is not ready, unless it waits for long enough.
// Not inlined, to keep call sites small.
#[inline(never)]
fn refuse<P: Policy>(
    policy: &P,
    state: &mut P::State,
    now: Nanos,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Option<Error> {
    let mut ready = match policy.ready_at(state, now, cost) {
        Ok(ready) => ready,
        Err(error) => return Some(error.into()),
    };
    if !is_too_late(max_wait, ready.earliest(), now) {
        return None;
    }
    if policy.refused(state, now, cost) {
        ready = policy.ready_at(state, now, cost).unwrap_or(ready);
    }
    let part = policy.limited_by(state, now, cost);
    Some(Error::Denied { retry_after: ready.wait(now), part })
}

/// The state under the mutex.
pub(crate) struct Inner<P: Policy> {
    pub(super) time: Monotone,
    pub(crate) policy: P,
    pub(super) state: P::State,
    pub(super) published: Published,
    /// Nothing is charged before this time: the last grant under the mutex, change, end of a pause, or departure of the head of
    /// the queue.
    pub(super) charges_from: Nanos,
    pub(super) stats: Stats,
    /// `None` until a caller waits.
    pub(super) waiting: DropApart<Option<Box<Waiting<P>>>>,
}

/// What a line needs when a caller waits; made then, because in most limiters no caller ever does.
pub(super) struct Waiting<P: Policy> {
    pub(super) queue: WaitQueue<Waiter<P>>,
    /// How many permits the waiting callers ask for.
    permits: u64,
    /// The same, part by part. No rule that bounds its queue has more than a number holds.
    queued: P::Cost,
    pub(super) bounds: Bounds,
    /// When the next waiter is granted, if that is known.
    due: Option<Nanos>,
    /// Which of several rules it waits for.
    limited_by: Option<Part>,
    /// In a pause.
    resumed: Option<Resumed<P::State>>,
}

/// In a pause: the state that counts if the pause ends early.
#[derive(Debug)]
struct Resumed<S> {
    /// As if the pause had ended at `until`, the time of the last change.
    state: S,
    until: Nanos,
}

#[derive(Debug)]
pub(super) struct Waiter<P: Policy> {
    cost: P::Cost,
    joined: Nanos,
    /// Once it is out of the order. In a box, as a crowd waits and few have an outcome at a time.
    outcome: Option<Box<Outcome<P>>>,
}

impl<P: Policy> Waits for Waiter<P> {
    fn permits(&self) -> u64 {
        self.cost.permits()
    }
}

impl<P: Policy> Default for Waiting<P> {
    fn default() -> Self {
        Self {
            queue: WaitQueue::new(),
            permits: 0,
            queued: P::Cost::default(),
            bounds: Bounds::NONE,
            due: None,
            limited_by: None,
            resumed: None,
        }
    }
}

impl<P: Policy> Waiting<P> {
    /// Takes a caller out of the order; it may still have to learn the outcome. `is_granted`: as the first one, in its turn.
    fn unlink(&mut self, id: WaiterId, is_granted: bool) {
        let cost = self.queue[id].cost;
        self.permits = self.permits.saturating_sub(cost.permits());
        self.queued = self.queued.saturating_sub(cost);
        if is_granted {
            self.queue.grant(id);
        } else {
            self.queue.unlink(id);
        }
    }

    /// Sets the outcome of a caller that is out of the order, and wakes it.
    // Not inlined, because several places need it, and none of them is short.
    #[inline(never)]
    fn set_outcome(&mut self, id: WaiterId, outcome: Outcome<P>) {
        self.queue[id].outcome = Some(Box::new(outcome));
        self.queue.wake_after_unlock(id);
    }

    /// Whether no caller waits, and none is refused because the line is closed.
    #[inline]
    fn is_idle(&self) -> bool {
        self.queue.len() == 0 && !self.queue.is_closed
    }

    /// When something happens next by itself.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let deadline = self.queue.first_deadline().map(|(deadline, _)| deadline);
        self.due.into_iter().chain(deadline).min()
    }
}

/// What it is.
impl<P: Policy> Inner<P> {
    pub(crate) fn new(policy: P, state: P::State, time: Monotone) -> Self {
        let charges_from = time.latest();
        let (published, stats) = (Published::default(), Stats::default());
        Self { time, policy, state, published, charges_from, stats, waiting: DropApart::default() }
    }

    // Not inlined, because any of many places may be the first to need it.
    #[inline(never)]
    pub(super) fn waiting(&mut self) -> &mut Waiting<P> {
        self.waiting.get_or_insert_default()
    }

    /// Whether no caller waits and nothing is paused or closed.
    #[inline]
    pub(super) fn is_quiet(&self, now: Nanos) -> bool {
        self.waiting.as_deref().is_none_or(Waiting::is_idle) && self.charges_from <= now
    }

    // Not inlined, because several places need it, and callers wait there.
    #[inline(never)]
    fn ready_at(&self, at: Nanos, cost: P::Cost) -> Result<Ready, ExceedsCapacity> {
        self.policy.ready_at(&self.state, at, cost)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.queue.is_closed)
    }

    #[inline]
    pub(crate) fn queue_len(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.queue.len())
    }

    pub(crate) fn queued_permits(&self) -> u64 {
        self.waiting.as_ref().map_or(0, |waiting| waiting.permits)
    }

    /// How many callers of a tenant wait.
    pub(crate) fn queue_len_of(&self, tenant: Tenant) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.queue.len_of(tenant))
    }

    pub(crate) fn available(&self, now: Nanos) -> P::Cost {
        if self.is_quiet(now) {
            self.policy.available(&self.state, now)
        } else {
            P::Cost::default()
        }
    }

    /// How much is left.
    pub(crate) fn quota(&self, now: Nanos) -> Quota<P::Cost> {
        let of_state = Quota::of(&self.policy, &self.state, now);
        let paused = self.charges_from.since(now);
        let reset_after = of_state.reset_after.map(|reset| reset.max(paused));
        Quota { remaining: self.available(now), reset_after, ..of_state }
    }

    /// How much is left of each limit, for a request of `cost`.
    pub(crate) fn limits(&self, now: Nanos, cost: P::Cost) -> Vec<Limit<P::Cost>> {
        let mut opens = Ready::At(self.charges_from);
        if let Some(waiting) = &*self.waiting
            && waiting.queue.len() > 0
        {
            opens = opens.and(waiting.due.map_or(Ready::NotBefore(now), Ready::At));
        }
        Limit::all(&self.policy, &self.state, Asked { opens, ..Asked::now(now, cost) })
    }
}

/// A caller that comes.
impl<P: Policy> Inner<P> {
    /// Grants a new caller, refuses it if its timeout cannot be enough, or puts it into the queue at the place that it claims.
    pub(super) fn enter(
        &mut self,
        now: Nanos,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<Caller<P>, Error> {
        let &Ask { cost, max_wait, ahead, tenant } = ask;
        if self.is_closed() {
            return Err(Error::Closed);
        }
        // A call for nothing need not wait.
        if cost.is_zero() {
            return Ok(Caller::Granted(Charge::at_once(None)));
        }
        let place = Place::new(Arrival::new(now, ahead), tenant, cost.permits());
        let queue = self.waiting.as_ref().map(|waiting| &waiting.queue);
        // It may have to wait, if that helps.
        let ready = self.ready_at(now, cost)?;
        if queue.is_none_or(|queue| queue.is_first(&place)) && self.charges_from <= now {
            // Ahead of all waiters the state decides. If there are any, a refusal is for below.
            if ready.has_come(now) {
                if let Some(waiting) = &mut *self.waiting {
                    waiting.queue.grant_at_once(&place);
                }
                return Ok(Caller::Granted(Charge::at_once(Some(self.charge(now, cost)))));
            }
            if self.queue_len() == 0
                && max_wait.is_some()
                && let Some(error) = refuse(&self.policy, &mut self.state, now, cost, max_wait)
            {
                return Err(error);
            }
        }
        self.waiting().queue.take_turns_for(&place);
        let deadline = max_wait.map(|wait| now.saturating_add(wait));
        // While nothing else is in its way, its timeout has been found to be enough.
        if let Some(deadline) = deadline.filter(|_| !self.is_quiet(now)) {
            // To add numbers up takes less.
            let most = if P::ONE_RATE.is_some() { 64 * MOST } else { MOST };
            let is_late = |ready: Ready| deadline <= now || deadline < ready.earliest();
            // Among tenants one that does not wait is granted when no caller waits.
            let does_wait = deadline > now || !self.waiting().queue.is_fair();
            let at = Some(&place).filter(|_| does_wait);
            // In time behind all waiters is in time at its place; for one rate nothing is counted there.
            let goes_ahead = deadline > now && !self.waiting().queue.is_last(&place);
            let is_uncounted = P::ONE_RATE.is_some() && goes_ahead;
            if !is_uncounted || is_late(self.projected(None, now, cost, most).0) {
                let mut projected = self.projected(at, now, cost, most);
                if is_late(projected.0) {
                    if self.change_state(now, |policy, state, _| policy.refused(state, now, cost)) {
                        projected = self.projected(at, now, cost, most);
                    }
                    let (ready, part) = projected;
                    return Err(Error::Denied { retry_after: ready.wait(now), part });
                }
            }
        }
        // The queue may be full,
        let waiting = self.waiting();
        let permits = waiting.permits.saturating_add(cost.permits());
        let of_tenant = tenant.map(|tenant| waiting.queue.len_of(tenant));
        if let Some(limit) = waiting.bounds.exceeded(waiting.queue.len(), permits, of_tenant) {
            let retry_after = match waiting.due.filter(|_| waiting.queue.len() > 0) {
                Some(due) => Some(due.since(now)),
                None => self.projected(Some(&place), now, cost, MOST).0.wait(now),
            };
            return Err(Error::QueueFull { limit, retry_after });
        }
        // or the policy has no room for what would wait.
        let joins = RuleEvent::Joins { queued: waiting.queued, cost };
        let room = self.policy.event(&mut self.state, now, joins);
        if room > now {
            let (limit, retry_after) = ("capacity", Some(room.since(now)));
            return Err(Error::QueueFull { limit, retry_after });
        }
        // It joins.
        let waiting = self.waiting();
        waiting.permits = permits;
        waiting.queued = waiting.queued.each(cost, u32::saturating_add);
        let waiter = Waiter { cost, joined: now, outcome: None };
        Ok(Caller::Waiting(waiting.queue.join(&place, waiter, deadline, waker.cloned())))
    }

    /// Charges a caller, and counts the grant.
    // Not inlined, because several places need it, and callers have waited there.
    #[inline(never)]
    fn charge(&mut self, at: Nanos, cost: P::Cost) -> P::Receipt {
        self.charges_from = at;
        self.stats.granted += 1;
        self.policy.charge(&mut self.state, at, cost)
    }
}

/// When a caller among the waiters would be granted.
impl<P: Policy> Inner<P> {
    /// When a caller would be granted at a place, or behind all waiters, and which of several rules it then waits for. Counts
    /// the first `most` waiters ahead of it.
    fn projected(
        &self,
        place: Option<&Place>,
        now: Nanos,
        cost: P::Cost,
        most: usize,
    ) -> (Ready, Option<Part>) {
        let waiting = self.waiting.as_deref().filter(|waiting| waiting.queue.len() > 0);
        let place = place.filter(|place| waiting.is_some_and(|it| !it.queue.is_last(place)));
        let ahead = waiting.filter(|it| place.is_none_or(|place| !it.queue.is_first(place)));
        // Not before the line moves, in case the clock has gone back.
        let moves = Ready::At(ahead.and_then(|ahead| ahead.due).unwrap_or(now));
        let from = now.max(self.charges_from);
        // A rule of one rate knows it by the number of permits.
        if P::ONE_RATE.is_some() {
            let permits = match place {
                None => self.queued_permits(),
                Some(_) => {
                    let mut permits = 0;
                    self.visit_ahead(place, most, |cost| {
                        permits += cost.permits();
                        true
                    });
                    permits
                }
            };
            if let Some(due) = self.policy.ready_behind(&self.state, from, permits, cost) {
                return (Ready::At(due).and(moves), None);
            }
        }
        // Others are asked in the state behind those waiters, each charged as soon as it is ready. Behind one that waits for
        // a release nothing is predictable: it is the last one that counts.
        let (mut state, mut ready) = (self.state.clone(), Ready::At(from));
        self.visit_ahead(place, most, |cost| {
            // A request that exceeds the capacity is refused in its turn.
            if let Ok(own) = self.policy.ready_at(&state, ready.earliest(), cost) {
                ready = ready.and(own);
                self.policy.charge(&mut state, ready.earliest(), cost);
            }
            matches!(ready, Ready::At(_))
        });
        let ready = ready.and(moves);
        let at = ready.earliest();
        let Ok(own) = self.policy.ready_at(&state, at, cost) else { return (ready, None) };
        // Or the rule that the waiters ahead wait for.
        let held_by = || ahead.filter(|_| self.charges_from <= now)?.limited_by;
        (own.and(ready), self.part_that_holds(&state, now, at, cost).or_else(held_by))
    }

    /// Shows what the first `most` waiters ahead of a place, or of all, ask for, as long as `visit` says to go on.
    fn visit_ahead(
        &self,
        place: Option<&Place>,
        mut most: usize,
        mut visit: impl FnMut(P::Cost) -> bool,
    ) {
        let Some(Waiting { queue, .. }) = self.waiting.as_deref() else { return };
        queue.visit_ahead(place, |id| {
            most -= 1;
            visit(queue[id].cost) && most > 0
        });
    }

    /// How long a new caller would wait behind all waiters. `None` if that is unpredictable.
    pub(crate) fn would_wait(
        &self,
        now: Nanos,
        cost: P::Cost,
    ) -> Result<Option<Duration>, ExceedsCapacity> {
        if cost.is_zero() {
            return Ok(Some(Duration::ZERO));
        }
        self.ready_at(now, cost)?;
        Ok(self.projected(None, now, cost, usize::MAX).0.wait(now))
    }

    /// How long a caller that waits or is granted still has to wait as things stand: a lower bound if that is unpredictable.
    pub(super) fn delay(&self, id: WaiterId, now: Nanos) -> Duration {
        let waiting = self.waiting.as_ref().filter(|waiting| waiting.queue[id].outcome.is_none());
        let Some(waiting) = waiting else { return Duration::ZERO };
        let (place, cost) = (waiting.queue.place_of(id), waiting.queue[id].cost);
        self.projected(Some(&place), now, cost, usize::MAX).0.earliest().since(now)
    }

    /// Which of several rules is not ready at `at`: none of them in a pause.
    fn part_that_holds(
        &self,
        state: &P::State,
        now: Nanos,
        at: Nanos,
        cost: P::Cost,
    ) -> Option<Part> {
        let is_paused = self.charges_from > now;
        if is_paused { None } else { self.policy.limited_by(state, at, cost) }
    }
}

/// The waiters.
impl<P: Policy> Inner<P> {
    /// Grants all that is due, in order, and refuses the waiters whose time is up.
    pub(super) fn pump(&mut self, now: Nanos) {
        let Some(waiting) = &mut *self.waiting else { return };
        // Not written where there is none, as in `WaitQueue::after_unlock`.
        if waiting.resumed.is_some() && self.charges_from <= now {
            waiting.resumed = None;
        }
        if waiting.queue.len() == 0 {
            waiting.due = None;
            return;
        }
        self.grant_due(now);
        self.refuse_late(now);
    }

    /// Grants the waiters that are due, in their order, and notes when the next one is.
    fn grant_due(&mut self, now: Nanos) {
        while let Some(key) = self.waiting().queue.front() {
            let queue = &self.waiting().queue;
            let (&Waiter { cost, joined, .. }, deadline) = (&queue[key], queue.deadline(key));
            // It is charged as of the time at which it was ready, so that a late alarm costs nothing, but not before the last
            // event or further back than the policy catches up.
            let catch_up = now.saturating_sub(self.policy.catch_up());
            let from = joined.max(self.charges_from).max(catch_up);
            let ready = match self.ready_at(from, cost) {
                Ok(ready) => ready,
                Err(error) => {
                    self.turn_away(key, now, error.into());
                    continue;
                }
            };
            let at = ready.earliest().max(from);
            if deadline.is_some_and(|deadline| deadline < at) {
                let part = self.part_that_holds(&self.state, now, now, cost);
                let retry_after = ready.and(Ready::At(at)).wait(now);
                self.turn_away(key, now, Error::Denied { retry_after, part });
            } else if at > now || matches!(ready, Ready::NotBefore(_)) {
                // After a pause, if there is one.
                let from = now.max(self.charges_from);
                let limited_by = self.policy.limited_by(&self.state, from, cost);
                let waiting = self.waiting();
                waiting.due = matches!(ready, Ready::At(_)).then_some(at);
                waiting.limited_by = limited_by;
                return;
            } else {
                let receipt = Some(self.charge(at, cost));
                let waited = at.since(joined);
                self.stats.waited = self.stats.waited.saturating_add(waited);
                let waiting = self.waiting();
                let (waited, limited_by) = (saturating_nanos(waited), waiting.limited_by);
                waiting.unlink(key, true);
                waiting.set_outcome(key, Ok(Charge { waited, receipt, limited_by }));
            }
        }
        self.waiting().due = None;
    }

    /// Refuses the waiters whose time is up, and grants what is due then.
    fn refuse_late(&mut self, now: Nanos) {
        let mut over = Vec::new();
        while let Some((deadline, key)) = self.waiting().queue.first_deadline()
            && deadline <= now
        {
            self.depart(key, now);
            over.push(key);
        }
        if over.is_empty() {
            return;
        }
        self.stats.refused += over.len() as u64;
        self.grant_due(now);
        // All of them have left before the first `retry_after` is computed, and most of them have the same.
        let mut last = None;
        for key in over {
            let queue = &self.waiting().queue;
            let &Waiter { cost, joined, .. } = &queue[key];
            let place = queue.place_of(key).later(now.since(joined));
            let (ready, part) = match last {
                Some((of, projected)) if of == (cost, place) => projected,
                _ => self.projected(Some(&place), now, cost, MOST),
            };
            last = Some(((cost, place), (ready, part)));
            self.waiting()
                .set_outcome(key, Err(Error::Denied { retry_after: ready.wait(now), part }));
        }
    }

    /// Takes a waiter out of the queue without a grant.
    fn turn_away(&mut self, key: WaiterId, now: Nanos, error: Error) {
        self.stats.refused += 1;
        self.depart(key, now);
        self.waiting().set_outcome(key, Err(error));
    }

    /// A waiter leaves without a grant. If it was the head, waiters behind it get no credit for time before now.
    fn depart(&mut self, key: WaiterId, now: Nanos) {
        let waiting = self.waiting();
        let was_head = waiting.queue.front() == Some(key);
        waiting.unlink(key, false);
        if was_head {
            self.charges_from = self.charges_from.max(now);
        }
    }

    /// A waiting caller leaves: its entry is removed, and a grant that it did not take is given back.
    pub(crate) fn leave(&mut self, key: WaiterId, now: Nanos) {
        let cost = self.waiting().queue[key].cost;
        match self.take_outcome(key) {
            None => {
                self.stats.given_up += 1;
                self.depart(key, now);
                self.waiting().queue.remove(key);
            }
            Some(Ok(charge)) => self.give_up(now, cost, charge),
            Some(Err(_)) => {}
        }
    }

    /// As `Line::poll`.
    pub(crate) fn poll(
        &mut self,
        key: WaiterId,
        waker: &Waker,
    ) -> Result<Outcome<P>, Option<Nanos>> {
        self.take_outcome(key).ok_or_else(|| {
            let waiting = self.waiting();
            waiting.queue.keep_waker(key, waker);
            waiting.next_event()
        })
    }

    /// Takes the outcome of a waiter, if there is one, and then removes its entry.
    pub(super) fn take_outcome(&mut self, key: WaiterId) -> Option<Outcome<P>> {
        let queue = &mut self.waiting().queue;
        let outcome = queue[key].outcome.take()?;
        queue.remove(key);
        Some(*outcome)
    }
}

/// Changes, of a charge or of the whole line.
///
/// A pause changes the state at its begin, so that all projections are those of its end. For an early end the line keeps a
/// second state: the one that it would have if the pause had ended at the last change.
impl<P: Policy> Inner<P> {
    /// Changes the state, and in a pause also the one that counts if the pause ends now. `change` also gets the time from
    /// which permits that come back count. Returns what it returned of the first.
    fn change_state<R>(
        &mut self,
        now: Nanos,
        mut change: impl FnMut(&P, &mut P::State, Nanos) -> R,
    ) -> R {
        let Self { policy, state, waiting, .. } = self;
        let result = change(policy, state, self.charges_from.max(now));
        if let Some(resumed) = waiting.as_mut().and_then(|waiting| waiting.resumed.as_mut()) {
            let Resumed { state, until } = resumed;
            // A pause that has taken no time discards nothing.
            if now != *until {
                policy.pause(state, *until, now);
            }
            change(policy, state, now);
            *until = now;
        }
        result
    }

    /// Nothing is charged before this time any more.
    fn moved(&mut self, charges_from: Nanos) {
        self.charges_from = self.charges_from.max(charges_from);
    }

    pub(crate) fn set_policy(&mut self, now: Nanos, policy: P) {
        self.change_state(now, |old, state, _| policy.migrate(old, state, now));
        self.policy = policy;
        self.moved(now);
        // Requests that exceed the new capacity need not wait, nor count for others.
        let Some(waiting) = &*self.waiting else { return };
        let mut over = Vec::new();
        waiting.queue.visit_ahead(None, |key| {
            let ready = self.ready_at(now, waiting.queue[key].cost);
            over.extend(ready.err().map(|error| (key, Error::from(error))));
            true
        });
        for (key, error) in over {
            self.turn_away(key, now, error);
        }
    }

    /// Changes a charge that was granted before. Returns the receipt of the rest. Fails if the shortfall takes too long to
    /// pay off.
    pub(crate) fn change(
        &mut self,
        now: Nanos,
        change: &Change<P>,
    ) -> Result<Option<P::Receipt>, ExceedsCapacity> {
        let &Change { more, part, less, ref receipt } = change;
        if !more.is_zero() {
            self.policy.check_debt(&self.state, now, more)?;
        }
        let receipt = self.change_state(now, |policy, state, from| {
            if !more.is_zero() {
                policy.charge(state, now, more);
            }
            let mut receipt = receipt.clone();
            if !part.is_zero() {
                receipt = receipt.map(|receipt| policy.refund(state, from, part, receipt));
            }
            if P::HELD && !less.is_zero() {
                policy.release(state, now, less);
            }
            receipt
        });
        self.moved(now);
        Ok(receipt)
    }

    /// Gives back what a grant held, if no caller waits for it. Returns whether it did.
    #[inline(always)]
    pub(super) fn release_at_once(&mut self, read: Option<Nanos>, cost: P::Cost) -> bool {
        let is_alone = |waiting: &Waiting<P>| waiting.is_idle() && waiting.resumed.is_none();
        let is_quiet = self.waiting.as_deref().is_none_or(is_alone);
        if is_quiet {
            let now = read.map_or(self.time.latest(), |read| self.time.read(read));
            self.policy.release(&mut self.state, now, cost);
        }
        is_quiet
    }

    /// The caller did not take its grant.
    pub(crate) fn give_up(&mut self, now: Nanos, cost: P::Cost, charge: Charge<P::Receipt>) {
        if !cost.is_zero() {
            self.stats.given_up += 1;
            // Without a shortfall it cannot fail.
            let _ = self.change(now, &Change::back(cost, cost, charge.receipt));
        }
    }

    pub(crate) fn pause(&mut self, now: Nanos, duration: Duration) {
        if duration.is_zero() {
            return;
        }
        let until = now.saturating_add(duration.min(Nanos::HORIZON));
        let before = (self.charges_from <= now).then(|| self.state.clone());
        self.policy.pause(&mut self.state, now, until);
        self.stats.pauses += u64::from(until > self.charges_from);
        if let Some(state) = before {
            self.waiting().resumed = Some(Resumed { state, until: now });
        }
        self.moved(until);
    }

    /// Ends a pause, as if it had been made to end now.
    pub(crate) fn resume(&mut self, now: Nanos) {
        // Brings the second state up to date.
        self.change_state(now, |_, _, _| ());
        let resumed = self.waiting.as_mut().and_then(|waiting| waiting.resumed.take());
        if let Some(Resumed { state, .. }) = resumed
            && self.charges_from > now
        {
            self.state = state;
            self.charges_from = now;
        }
    }

    /// Begins anew. Callers that wait go on waiting.
    pub(crate) fn reset(&mut self, now: Nanos) {
        self.resume(now);
        self.change_state(now, |policy, state, _| _ = policy.tell(state, now, RuleEvent::Reset));
        self.moved(now);
    }
}

/// The end.
impl<P: Policy> Inner<P> {
    /// Whether no caller waits and no place in flight is held.
    pub(super) fn is_drained(&self) -> bool {
        self.queue_len() == 0 && (!P::HELD || self.policy.idle_at(&self.state).is_some())
    }

    /// `Err`: not yet, and when the line moves next, if that is known.
    pub(crate) fn end(&mut self, now: Nanos, end: End<'_>) -> Result<bool, Option<Nanos>> {
        match end {
            End::IsClosed => return Ok(self.is_closed()),
            End::IsDrained(_) if self.is_drained() => {}
            End::IsDrained(waker) => {
                let waiting = self.waiting();
                waiting.queue.keep_until_drained(waker);
                return Err(waiting.next_event());
            }
            End::Serve => self.waiting().queue.is_closed = true,
            End::Close => {
                self.waiting().queue.is_closed = true;
                while let Some(key) = self.waiting().queue.front() {
                    self.turn_away(key, now, Error::Closed);
                }
            }
        }
        Ok(true)
    }
}

/// Beside a word: what it has charged is noted in the state, and the state is published as the word.
impl<P: Policy> Inner<P> {
    /// Takes the state over from the word, if that holds it.
    pub(super) fn take_over(
        &mut self,
        word: &Word,
        now: impl FnOnce(&mut Monotone) -> Nanos,
    ) -> Nanos {
        let positions = word.lock(&mut self.published);
        // Read under the lock, so that the order of times is the order of events.
        let now = now(&mut self.time);
        if let Some(one) = P::ONE_RATE
            && let Some([before, position]) = positions
        {
            let state = (one.state_mut)(&mut self.state);
            state.position = position;
            if position != before
                && let Some(schedule) = (one.schedule)(&self.policy)
            {
                schedule.note_charges(state, before, now.min(self.published.until));
            }
        }
        now
    }

    /// Lets the word decide again, if no caller waits and nothing is paused.
    pub(super) fn publish(&mut self, word: &Word, now: Nanos) {
        if let Some(one) = P::ONE_RATE
            && self.is_quiet(now)
            && let Some(schedule) = (one.schedule)(&self.policy)
        {
            let state = (one.state_mut)(&mut self.state);
            word.publish(&mut self.published, schedule, state, now);
        }
    }
}
