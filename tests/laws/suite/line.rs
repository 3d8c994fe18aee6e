//! The queue as the design states it, as a `Vec`: callers are charged when they are granted, in the
//! order of their arrival, less the time by which they enter ahead of others. Tenants take
//! [turns](Turns).

use crate::measure;
use crate::oracle::{Oracle, Time, When};
use crate::turns::{self, Rank, Turns};

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    Waiting,
    Granted { at: Time },
    Refused { decided: Time, retry_after: Option<Time> },
    QueueFull { decided: Time, retry_after: Option<Time> },
    ExceedsCapacity { decided: Time },
    Left,
}

#[derive(Clone, Debug)]
pub(crate) struct Caller {
    n: u32,
    joined: Time,
    pub(crate) rank: Rank,
    deadline: Option<Time>,
    pub(crate) outcome: Outcome,
    pub(crate) given_back: bool,
    pub(crate) dropped: bool,
    /// [`Line::age`] when this was granted.
    pub(crate) age: usize,
}

impl Caller {
    /// Whether this has permits that can be given back.
    pub(crate) fn has_grant(&self) -> bool {
        matches!(self.outcome, Outcome::Granted { .. }) && !self.given_back && !self.dropped
    }
}

/// The rule as it is if a pause ends now.
#[derive(Clone, Debug)]
struct Unpaused {
    policy: Box<dyn Oracle>,
    /// Until when it has been paused so far.
    until: Time,
}

impl Unpaused {
    fn pause(&mut self, now: Time) {
        if self.until < now || !measure::EXACT_PAUSES {
            self.policy.pause(self.until, now);
            self.until = now;
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    policy: Box<dyn Oracle>,
    pub(crate) callers: Vec<Caller>,
    /// The waiters, the first in front.
    pub(crate) queue: Vec<usize>,
    /// From the first caller of a tenant that has to wait until the queue is empty.
    turns: Option<Turns>,
    /// For how many permits a cost of `n` counts.
    permits: fn(u32) -> u64,
    /// Grants that were not given back, the latest last.
    charges: Vec<usize>,
    pub(crate) now: Time,
    /// No caller is charged for a time before this.
    since: Time,
    /// In a pause, and when it ends.
    unpaused: Option<Unpaused>,
    paused_until: Time,
    catch_up: Time,
    tolerance: Time,
    /// The number of changes of the policy, pauses, and refunds of a charge on which later ones
    /// depend.
    pub(crate) age: usize,
    /// The number of charges made before a refund of a charge on which later ones depend, or at
    /// another price.
    touched: usize,
    /// A deadline was so close to a grant that rounding decides.
    doubtful: bool,
    /// A waiter has become late that need not learn it at once, or a place in flight came back just at its deadline,
    /// and it need not have been asked for.
    unaware: bool,
}

/// When a caller is granted: at this time, or not before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) at: Time,
    pub(crate) is_known: bool,
}

impl Due {
    fn wait(self, now: Time) -> Option<Time> {
        self.is_known.then_some((self.at - now).max(0))
    }

    fn and(self, when: When) -> Self {
        match when {
            When::At(at) => Self { at: self.at.max(at), ..self },
            When::NotBefore(at) => Self { at: self.at.max(at), is_known: false },
            When::Never => self,
        }
    }
}

impl Line {
    pub(crate) fn new(policy: Box<dyn Oracle>, catch_up: Time, tolerance: Time) -> Self {
        Self {
            policy,
            callers: Vec::new(),
            queue: Vec::new(),
            turns: None,
            permits: u64::from,
            charges: Vec::new(),
            now: 0,
            since: 0,
            unpaused: None,
            paused_until: 0,
            catch_up,
            tolerance,
            age: 0,
            touched: 0,
            doubtful: false,
            unaware: false,
        }
    }

    pub(crate) fn counting(self, permits: fn(u32) -> u64) -> Self {
        Self { permits, ..self }
    }

    /// Whether later steps prove nothing: rounding decided, or a refund that the oracle does not define.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful || self.unaware || self.policy.is_doubtful()
    }

    /// Whether it is open when a waiter was refused, and so what those behind it were told.
    pub(crate) fn has_unaware(&self) -> bool {
        self.unaware
    }

    /// When the head of the queue is charged; `None` if never.
    fn charge_time(&self, joined: Time, n: u32) -> Option<Due> {
        let earliest = joined.max(self.since).max(self.now - self.catch_up);
        match self.policy.ready(self.now, n) {
            When::Never => None,
            when => Some(Due { at: earliest, is_known: true }.and(when)),
        }
    }

    /// The policy after all waiters, each charged in turn, and when the last of them is charged.
    /// Requests that can never be granted are skipped, because they will be refused.
    fn behind(&self, place: usize) -> (Box<dyn Oracle>, Due) {
        let mut policy = self.policy.copy();
        let mut due = Due { at: self.now.max(self.since), is_known: true };
        for &ahead in &self.queue[..place] {
            let n = self.callers[ahead].n;
            let when = policy.ready(due.at, n);
            if when != When::Never {
                due = due.and(when);
                policy.charge(ahead, due.at, n);
            }
            if !due.is_known && !policy.is_bounded() {
                // Nothing is known of those behind.
                break;
            }
        }
        (policy, due)
    }

    /// The place of a caller that arrives now, and enters by `ahead` ahead of others.
    fn place(&self, n: u32, rank: Rank) -> usize {
        let is_later = |&id: &usize| {
            let Caller { joined, rank: theirs, .. } = self.callers[id];
            theirs.tenant.is_none() && joined - theirs.ahead > self.now - rank.ahead
        };
        let place = self.queue.iter().position(is_later).filter(|_| rank.ahead > 0);
        place.unwrap_or_else(|| {
            let turns = self.turns_of(rank);
            let place = |turns: &Turns| turns.place(&self.waiters(), self.waiter(rank, n));
            turns.as_ref().map_or(self.queue.len(), place)
        })
    }

    fn waiter(&self, rank: Rank, n: u32) -> turns::Waiter {
        turns::waiter(rank, (self.permits)(n))
    }

    /// Tenants, and what they wait for, in order.
    fn waiters(&self) -> Vec<turns::Waiter> {
        let waiter = |&id: &usize| self.waiter(self.callers[id].rank, self.callers[id].n);
        self.queue.iter().map(waiter).collect()
    }

    /// The turns if such a caller comes: all that wait before the first tenant comes are one tenant.
    fn turns_of(&self, rank: Rank) -> Option<Turns> {
        self.turns.clone().or_else(|| {
            rank.tenant?;
            let mut turns = Turns::default();
            if !self.queue.is_empty() {
                turns.join(&[], turns::waiter(Rank::default(), 1));
            }
            Some(turns)
        })
    }

    /// Some have left.
    fn sort(&mut self) {
        if self.queue.is_empty() {
            self.turns = None;
        }
        let waiters = self.waiters();
        if let Some(turns) = &mut self.turns {
            turns.forget(&waiters);
        }
        if let Some(turns) = &self.turns {
            let order = turns.order(&self.waiters());
            self.queue = order.into_iter().map(|index| self.queue[index]).collect();
        }
    }

    /// When a caller that arrives now would be granted if no waiter leaves.
    pub(crate) fn projected(&self, n: u32, rank: Rank) -> Due {
        self.projected_in(self.place(n, rank), n)
    }

    fn projected_in(&self, place: usize, n: u32) -> Due {
        let (policy, due) = self.behind(place);
        due.and(policy.ready(due.at, n))
    }

    fn grant(&mut self, id: usize, at: Time) {
        let n = self.callers[id].n;
        if n > 0 {
            self.policy.charge(id, at, n);
            self.charges.push(id);
            self.since = self.since.max(at);
        }
        self.callers[id].outcome = Outcome::Granted { at };
        self.callers[id].age = self.age;
    }

    fn refuse(&mut self, id: usize, due: Due) {
        let retry_after = due.wait(self.now);
        self.callers[id].outcome = Outcome::Refused { decided: self.now, retry_after };
    }

    /// Removes a waiter that was not granted.
    fn depart(&mut self, id: usize) {
        if self.queue[0] == id {
            self.since = self.since.max(self.now);
        }
        self.queue.retain(|&other| other != id);
        self.sort();
    }

    /// Grants all requests that are due, and refuses those past their deadlines.
    fn pump(&mut self) {
        self.grant_due();
        while let Some((deadline, id)) = self.next_deadline()
            && deadline <= self.now
        {
            let head = &self.callers[self.queue[0]];
            let due = self.charge_time(head.joined, head.n);
            self.doubt(deadline, due.map(|due| due.at));
            self.depart(id);
            self.grant_due();
            let Caller { n, rank, .. } = self.callers[id];
            self.refuse(id, self.projected(n, rank));
        }
        if let Some(aware) = measure::REFUSED_AT_ONCE {
            self.refuse_the_late(aware);
        }
    }

    /// Refuses those behind the head that cannot meet their deadlines; the first `aware` waiters learn it at once.
    fn refuse_the_late(&mut self, aware: usize) {
        let mut policy = self.policy.copy();
        let mut due = Due { at: self.now.max(self.since), is_known: true };
        for (place, id) in self.queue.clone().into_iter().enumerate() {
            let Caller { n, deadline, .. } = self.callers[id];
            let own = due.and(policy.ready(due.at, n));
            if deadline.is_some_and(|deadline| (own.at - deadline).abs() <= self.tolerance) {
                self.doubtful |= self.tolerance > 0;
            }
            if deadline.is_some_and(|deadline| own.at > deadline) {
                self.unaware |= place >= aware;
                self.refuse(id, own);
                self.depart(id);
            } else if due.is_known {
                due = own;
                policy.charge(id, due.at, n);
            }
        }
    }

    /// A waiter is refused at its deadline, or at the head of the queue: rounding decides which, if it gets there
    /// just at its deadline. `head`: when the head is due.
    fn doubt(&mut self, deadline: Time, head: Option<Time>) {
        let near = |time: Time| (time - deadline).abs() <= self.tolerance;
        self.doubtful |= self.tolerance > 0 && (near(self.since) || head.is_some_and(near));
    }

    fn grant_due(&mut self) {
        while let Some(&head) = self.queue.first() {
            let Caller { n, joined, deadline, .. } = self.callers[head];
            let Some(due) = self.charge_time(joined, n) else {
                self.callers[head].outcome = Outcome::ExceedsCapacity { decided: self.now };
                self.depart(head);
                continue;
            };
            if deadline.is_some_and(|deadline| (due.at - deadline).abs() <= self.tolerance) {
                self.doubtful |= self.tolerance > 0;
            }
            if let Some(deadline) = deadline.filter(|&deadline| due.at > deadline) {
                self.doubt(deadline, None);
                self.refuse(head, due);
                self.depart(head);
            } else if due.is_known && due.at <= self.now {
                self.unaware |= deadline == Some(due.at)
                    && due.at > joined
                    && self.policy.holds()
                    && !measure::EXACT_REFUSALS;
                let (waiters, waiter) = (self.waiters(), self.waiter(self.callers[head].rank, n));
                if let Some(turns) = &mut self.turns {
                    turns.grant(&waiters, waiter);
                }
                self.queue.remove(0);
                self.sort();
                self.grant(head, due.at);
            } else {
                break;
            }
        }
    }

    fn next_deadline(&self) -> Option<(Time, usize)> {
        self.queue.iter().filter_map(|&id| Some((self.callers[id].deadline?, id))).min()
    }

    /// The time of the next grant or deadline.
    pub(crate) fn next_event(&self) -> Option<Time> {
        let head = &self.callers[*self.queue.first()?];
        let due = self.charge_time(head.joined, head.n).filter(|due| due.is_known);
        let deadline = self.next_deadline().map(|(deadline, _)| deadline);
        due.map(|due| due.at).into_iter().chain(deadline).min()
    }

    pub(crate) fn advance(&mut self, span: Time) {
        let end = self.now + span;
        while let Some(event) = self.next_event().filter(|&event| event <= end) {
            self.now = event;
            self.pump();
        }
        self.now = end;
    }

    /// Whether an event is so close to now that rounding decides on which side it lies, for a
    /// caller that asks for `n`.
    pub(crate) fn on_the_edge(&self, n: u32) -> bool {
        let near = |time: Time| (time - self.now).abs() <= self.tolerance;
        let just_granted = self.charges.last().map(|&id| self.callers[id].outcome);
        self.tolerance > 0
            && (matches!(self.policy.ready(self.now, n), When::At(at) if near(at))
                || n > 0 && self.policy.is_bounded() && self.is_leaking_to(n, near)
                || self.next_event().is_some_and(near)
                || matches!(just_granted, Some(Outcome::Granted { at }) if near(at) && at > 0))
    }

    /// The time from which there is room for `n`.
    fn room(&self, n: u32, rank: Rank) -> Time {
        self.room_at(self.now, n, rank)
    }

    fn room_at(&self, now: Time, n: u32, rank: Rank) -> Time {
        let counted =
            if measure::COUNTS_OVERTAKEN { self.queue.len() } else { self.place(n, rank) };
        let queued: Vec<_> = self.queue[..counted].iter().map(|&id| self.callers[id].n).collect();
        self.policy.room(now, &queued, n)
    }

    /// Whether room comes by leaking at such a time. While nothing leaks, nothing is rounded
    /// either, and the time at which there would be room advances with the clock.
    fn is_leaking_to(&self, n: u32, near: impl Fn(Time) -> bool) -> bool {
        let room = self.room(n, Rank::default());
        near(room) && self.room_at(self.now + 1, n, Rank::default()) == room
    }

    /// Whether rounding decides if there is room in a pause, in which nothing leaks.
    fn is_just_full(&self, n: u32, rank: Rank) -> bool {
        let room = self.policy.is_bounded().then(|| self.room(n, rank));
        self.since > self.now
            && room.is_some_and(|room| {
                (1..=self.tolerance).contains(&(room - self.since))
                    || (1..=self.tolerance).contains(&(self.now - room))
            })
    }

    /// The oracle avoids cases that it does not define: no two deadlines at one moment, and none
    /// where rounding decides.
    pub(crate) fn settle_timeout(&self, n: u32, rank: Rank, timeout: Time) -> Time {
        let due = self.projected(n, rank).at;
        let unclear = |deadline: Time| {
            self.tolerance > 0 && (deadline - due).abs() <= self.tolerance
                || self.queue.iter().any(|&id| self.callers[id].deadline == Some(deadline))
        };
        (timeout..).find(|&timeout| !unclear(self.now + timeout)).expect("room for a deadline")
    }

    pub(crate) fn arrive(&mut self, n: u32, rank: Rank, timeout: Option<Time>) -> usize {
        let id = self.callers.len();
        let deadline = timeout.map(|timeout| self.now + timeout);
        let (joined, age, outcome) = (self.now, self.age, Outcome::Waiting);
        let (given_back, dropped) = (false, false);
        self.callers.push(Caller { n, joined, rank, deadline, outcome, given_back, dropped, age });
        let decided = self.now;
        if n == 0 {
            self.grant(id, self.now);
            return id;
        }
        let Some(own) = self.charge_time(joined, n) else {
            self.callers[id].outcome = Outcome::ExceedsCapacity { decided };
            return id;
        };
        self.doubtful |= self.is_just_full(n, rank);
        let due = self.projected(n, rank);
        if !self.queue.is_empty() {
            self.turns = self.turns_of(rank);
        }
        let (waiters, waiter) = (self.waiters(), self.waiter(rank, n));
        if self.place(n, rank) == 0 && own.is_known && own.at <= self.now {
            if let Some(turns) = &mut self.turns {
                turns.grant(&waiters, waiter);
            }
            self.sort();
            self.grant(id, self.now);
        } else if deadline.is_some_and(|deadline| deadline <= self.now || due.at > deadline) {
            self.change(|policy, now| policy.refused(now, n));
            let due = if self.turns.is_some() && timeout == Some(0) {
                // It is granted when no caller waits.
                self.projected_in(self.queue.len(), n)
            } else {
                self.projected(n, rank)
            };
            self.refuse(id, due);
            if !measure::EXACT_REFUSALS {
                // A waiter that the lock makes late learns it with its next request.
                self.refuse_the_late(0);
            }
        } else if self.room(n, rank) > self.now {
            let retry_after = Some(self.room(n, rank) - self.now);
            self.callers[id].outcome = Outcome::QueueFull { decided, retry_after };
        } else {
            self.turns = self.turns_of(rank);
            let place = self.place(n, rank);
            if let Some(turns) = &mut self.turns {
                turns.join(&waiters, waiter);
            }
            self.queue.insert(place, id);
            self.sort();
        }
        self.pump();
        id
    }

    /// A caller gives up its place or its grant.
    pub(crate) fn leave(&mut self, id: usize) {
        if self.callers[id].outcome == Outcome::Waiting {
            self.depart(id);
            self.callers[id].outcome = Outcome::Left;
        } else if self.callers[id].has_grant() {
            self.callers[id].given_back = true;
            if self.callers[id].n > 0 {
                let last = self.charges.last() == Some(&id);
                // A charge at another price than the current one affects those before it.
                let clean = last && self.callers[id].age == self.age;
                self.since = self.since.max(self.now);
                let since = self.since;
                self.policy.refund(id, since);
                self.change_unpaused(|policy, now| policy.refund(id, now));
                self.change(|policy, _| policy.release(id));
                self.charges.retain(|&other| other != id);
                self.age += usize::from(!last);
                if !clean {
                    self.touched = self.charges.len();
                }
            }
        }
        self.pump();
    }

    /// The grant is no longer needed. This matters if the policy holds grants.
    pub(crate) fn drop_grant(&mut self, id: usize) {
        if self.callers[id].has_grant() {
            self.callers[id].dropped = true;
            if self.policy.holds() && self.callers[id].n > 0 {
                self.since = self.since.max(self.now);
                self.change(|policy, _| policy.release(id));
            }
        }
        self.pump();
    }

    /// The last grant, unless an event since makes an exact refund undefined.
    pub(crate) fn last_grant(&self) -> Option<usize> {
        self.charges.last().copied().filter(|_| self.charges.len() > self.touched)
    }

    pub(crate) fn set_policy(&mut self, index: usize) {
        self.change(|policy, now| policy.set_policy(index, now));
        // Waiters for more than the new capacity are refused at once.
        for id in self.queue.clone() {
            if self.policy.ready(self.now, self.callers[id].n) == When::Never {
                self.callers[id].outcome = Outcome::ExceedsCapacity { decided: self.now };
                self.depart(id);
            }
        }
        self.changed(self.now);
    }

    pub(crate) fn pause(&mut self, span: Time) {
        let end = self.now + span;
        self.end_pause();
        let unpaused = || Unpaused { policy: self.policy.copy(), until: self.now };
        self.unpaused.get_or_insert_with(unpaused);
        self.paused_until = self.paused_until.max(end);
        self.policy.pause(self.now, end);
        self.changed(end);
    }

    /// It is as if the pause had ended now by itself.
    pub(crate) fn resume(&mut self) {
        self.end_pause();
        if let Some(mut unpaused) = self.unpaused.take() {
            unpaused.pause(self.now);
            self.policy = unpaused.policy;
            (self.since, self.paused_until) = (self.now, self.now);
            self.changed(self.now);
        }
    }

    /// A pause that is over cannot be ended.
    fn end_pause(&mut self) {
        self.unpaused.take_if(|_| self.paused_until <= self.now);
    }

    /// Changes the rule, and in a pause also the one that holds if it ends now.
    fn change(&mut self, change: impl Fn(&mut dyn Oracle, Time)) {
        change(&mut *self.policy, self.now);
        self.change_unpaused(change);
    }

    fn change_unpaused(&mut self, change: impl Fn(&mut dyn Oracle, Time)) {
        if let Some(unpaused) = &mut self.unpaused {
            unpaused.pause(self.now);
            change(&mut *unpaused.policy, self.now);
        }
    }

    fn changed(&mut self, since: Time) {
        self.age += 1;
        self.since = self.since.max(since);
        self.pump();
    }
}
