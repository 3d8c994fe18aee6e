//! The line as the design states it, with a `Vec` for a queue: callers are charged when they are
//! granted, in the order of their arrival.

use crate::measure;
use crate::oracle::{Oracle, Time, When};

/// What became of a caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Waiting,
    Granted { at: Time },
    Refused { told: Time, retry_after: Option<Time> },
    QueueFull { told: Time, retry_after: Option<Time> },
    ExceedsCapacity { told: Time },
    Left,
}

#[derive(Clone, Debug)]
pub(crate) struct Caller {
    n: u32,
    joined: Time,
    deadline: Option<Time>,
    pub(crate) fate: Fate,
    pub(crate) given_back: bool,
    pub(crate) dropped: bool,
    /// [`Line::age`] when this was granted.
    pub(crate) age: usize,
}

impl Caller {
    /// Whether this has permits that can be given back.
    pub(crate) fn has_grant(&self) -> bool {
        matches!(self.fate, Fate::Granted { .. }) && !self.given_back && !self.dropped
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    policy: Box<dyn Oracle>,
    pub(crate) callers: Vec<Caller>,
    /// Who waits, the first in front.
    pub(crate) queue: Vec<usize>,
    /// Grants that were not given back, the latest last.
    charges: Vec<usize>,
    pub(crate) now: Time,
    /// Nobody is charged for a time before this.
    since: Time,
    catch_up: Time,
    tolerance: Time,
    /// How often the policy changed, there was a pause, or something was refunded on which others
    /// had built.
    pub(crate) age: usize,
    /// So many of these were charged before something was refunded on which others had built, or at
    /// another price.
    touched: usize,
    /// Somebody's time was up so close to a grant that rounding decides; what follows proves
    /// nothing.
    pub(crate) doubtful: bool,
}

/// When somebody is granted: then, or not before then.
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
            charges: Vec::new(),
            now: 0,
            since: 0,
            catch_up,
            tolerance,
            age: 0,
            touched: 0,
            doubtful: false,
        }
    }

    /// When somebody is charged who has come to the head of the line; `None` if never.
    fn charge_time(&self, joined: Time, n: u32) -> Option<Due> {
        let earliest = joined.max(self.since).max(self.now - self.catch_up);
        match self.policy.ready(self.now, n) {
            When::Never => None,
            when => Some(Due { at: earliest, is_known: true }.and(when)),
        }
    }

    /// The policy behind all who wait, each charged in turn, and when the last of them is. Who asks
    /// for too much will be turned away.
    fn behind(&self) -> (Box<dyn Oracle>, Due) {
        let mut policy = self.policy.copy();
        let mut due = Due { at: self.now.max(self.since), is_known: true };
        for &ahead in &self.queue {
            let n = self.callers[ahead].n;
            let when = policy.ready(due.at, n);
            if when != When::Never {
                due = due.and(when);
                policy.charge(ahead, due.at, n);
            }
            if !due.is_known && !policy.is_bounded() {
                // Nobody can know anything of those behind.
                break;
            }
        }
        (policy, due)
    }

    /// When somebody who comes now would be granted if nobody leaves.
    pub(crate) fn projected(&self, n: u32) -> Due {
        let (policy, due) = self.behind();
        due.and(policy.ready(due.at, n))
    }

    fn grant(&mut self, id: usize, at: Time) {
        let n = self.callers[id].n;
        if n > 0 {
            self.policy.charge(id, at, n);
            self.charges.push(id);
            self.since = self.since.max(at);
        }
        self.callers[id].fate = Fate::Granted { at };
        self.callers[id].age = self.age;
    }

    fn refuse(&mut self, id: usize, due: Due) {
        let retry_after = due.wait(self.now);
        self.callers[id].fate = Fate::Refused { told: self.now, retry_after };
    }

    /// Takes somebody out of the line who was not granted.
    fn depart(&mut self, id: usize) {
        if self.queue[0] == id {
            self.since = self.since.max(self.now);
        }
        self.queue.retain(|&other| other != id);
    }

    /// Grants all that is due, and turns away whose time is up.
    fn pump(&mut self) {
        self.grant_due();
        while let Some((deadline, id)) = self.next_deadline()
            && deadline <= self.now
        {
            self.depart(id);
            self.grant_due();
            self.refuse(id, self.projected(self.callers[id].n));
        }
        if measure::TELLS_AT_ONCE {
            self.refuse_the_late();
        }
    }

    /// Turns away those behind the head who will not make it as things stand.
    fn refuse_the_late(&mut self) {
        let mut policy = self.policy.copy();
        let mut due = Due { at: self.now.max(self.since), is_known: true };
        for id in self.queue.clone() {
            let Caller { n, deadline, .. } = self.callers[id];
            let own = due.and(policy.ready(due.at, n));
            if deadline.is_some_and(|deadline| (own.at - deadline).abs() <= self.tolerance) {
                self.doubtful |= self.tolerance > 0;
            }
            if deadline.is_some_and(|deadline| own.at > deadline) {
                self.refuse(id, own);
                self.depart(id);
            } else if due.is_known {
                due = own;
                policy.charge(id, due.at, n);
            }
        }
    }

    fn grant_due(&mut self) {
        while let Some(&head) = self.queue.first() {
            let Caller { n, joined, deadline, .. } = self.callers[head];
            let Some(due) = self.charge_time(joined, n) else {
                self.callers[head].fate = Fate::ExceedsCapacity { told: self.now };
                self.depart(head);
                continue;
            };
            if deadline.is_some_and(|deadline| (due.at - deadline).abs() <= self.tolerance) {
                self.doubtful |= self.tolerance > 0;
            }
            if deadline.is_some_and(|deadline| due.at > deadline) {
                self.refuse(head, due);
                self.depart(head);
            } else if due.is_known && due.at <= self.now {
                self.queue.remove(0);
                self.grant(head, due.at);
            } else {
                break;
            }
        }
    }

    fn next_deadline(&self) -> Option<(Time, usize)> {
        self.queue.iter().filter_map(|&id| Some((self.callers[id].deadline?, id))).min()
    }

    /// When something happens next by itself.
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

    /// Whether something is so close to now that rounding decides on which side it lies, for
    /// somebody who comes and asks for `n`.
    pub(crate) fn on_the_edge(&self, n: u32) -> bool {
        let near = |time: Time| (time - self.now).abs() <= self.tolerance;
        let just_granted = self.charges.last().map(|&id| self.callers[id].fate);
        self.tolerance > 0
            && (matches!(self.policy.ready(self.now, n), When::At(at) if near(at))
                || n > 0 && self.policy.is_bounded() && self.is_leaking_to(n, near)
                || self.next_event().is_some_and(near)
                || matches!(just_granted, Some(Fate::Granted { at }) if near(at) && at > 0))
    }

    /// From when on there is room for `n`.
    fn room(&self, n: u32) -> Time {
        self.room_at(self.now, n)
    }

    fn room_at(&self, now: Time, n: u32) -> Time {
        let queued: Vec<_> = self.queue.iter().map(|&id| self.callers[id].n).collect();
        self.policy.room(now, &queued, n)
    }

    /// Whether room comes by leaking at such a time. While nothing leaks, nothing is rounded either, and
    /// the time at which there would be room goes on with the clock.
    fn is_leaking_to(&self, n: u32, near: impl Fn(Time) -> bool) -> bool {
        let room = self.room(n);
        near(room) && self.room_at(self.now + 1, n) == room
    }

    /// The oracle leaves some room to what is not its subject: no two deadlines at one moment, and
    /// none where rounding decides.
    pub(crate) fn settle_timeout(&self, n: u32, timeout: Time) -> Time {
        let due = self.projected(n).at;
        let unclear = |deadline: Time| {
            self.tolerance > 0 && (deadline - due).abs() <= self.tolerance
                || self.queue.iter().any(|&id| self.callers[id].deadline == Some(deadline))
        };
        (timeout..).find(|&timeout| !unclear(self.now + timeout)).expect("room for a deadline")
    }

    pub(crate) fn arrive(&mut self, n: u32, timeout: Option<Time>) -> usize {
        let id = self.callers.len();
        let deadline = timeout.map(|timeout| self.now + timeout);
        let (joined, age, fate) = (self.now, self.age, Fate::Waiting);
        let (given_back, dropped) = (false, false);
        self.callers.push(Caller { n, joined, deadline, fate, given_back, dropped, age });
        let told = self.now;
        if n == 0 {
            self.grant(id, self.now);
            return id;
        }
        let Some(own) = self.charge_time(joined, n) else {
            self.callers[id].fate = Fate::ExceedsCapacity { told };
            return id;
        };
        let due = self.projected(n);
        if self.queue.is_empty() && own.is_known && own.at <= self.now {
            self.grant(id, self.now);
        } else if deadline.is_some_and(|deadline| deadline <= self.now || due.at > deadline) {
            self.policy.refused(self.now, n);
            self.refuse(id, self.projected(n));
        } else if self.room(n) > self.now {
            let retry_after = Some(self.room(n) - self.now);
            self.callers[id].fate = Fate::QueueFull { told, retry_after };
        } else {
            self.queue.push(id);
        }
        self.pump();
        id
    }

    /// Somebody gives up: its place, or what it was granted.
    pub(crate) fn leave(&mut self, id: usize) {
        if self.callers[id].fate == Fate::Waiting {
            self.depart(id);
            self.callers[id].fate = Fate::Left;
        } else if self.callers[id].has_grant() {
            self.callers[id].given_back = true;
            if self.callers[id].n > 0 {
                let last = self.charges.last() == Some(&id);
                // At another price than now, it leaves a trace in those before it.
                let clean = last && self.callers[id].age == self.age;
                self.since = self.since.max(self.now);
                self.policy.refund(id, self.since);
                self.policy.release(id);
                self.charges.retain(|&other| other != id);
                self.age += usize::from(!last);
                if !clean {
                    self.touched = self.charges.len();
                }
            }
        }
        self.pump();
    }

    /// The grant is no longer needed: that matters where it is held.
    pub(crate) fn drop_grant(&mut self, id: usize) {
        if self.callers[id].has_grant() {
            self.callers[id].dropped = true;
            if self.policy.holds() && self.callers[id].n > 0 {
                self.since = self.since.max(self.now);
                self.policy.release(id);
            }
        }
        self.pump();
    }

    /// The last grant, unless something happened that makes "as if it had never been" hard to say.
    pub(crate) fn last_grant(&self) -> Option<usize> {
        self.charges.last().copied().filter(|_| self.charges.len() > self.touched)
    }

    pub(crate) fn set_policy(&mut self, index: usize) {
        self.policy.set_policy(index, self.now);
        // Who waits for more than there ever is now need not wait.
        for id in self.queue.clone() {
            if self.policy.ready(self.now, self.callers[id].n) == When::Never {
                self.callers[id].fate = Fate::ExceedsCapacity { told: self.now };
                self.depart(id);
            }
        }
        self.changed(self.now);
    }

    pub(crate) fn pause(&mut self, span: Time) {
        let end = self.now + span;
        self.policy.pause(self.now, end);
        self.changed(end);
    }

    fn changed(&mut self, since: Time) {
        self.age += 1;
        self.since = self.since.max(since);
        self.pump();
    }
}
