//! The line as the design states it, with a `Vec` for a queue: callers are charged when they are
//! granted, in the order of their arrival.

use crate::oracle::{Fraction, Oracle, Time};

/// What became of a caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Waiting,
    Granted { at: Time },
    Refused { told: Time, retry_after: Time },
    Left,
}

#[derive(Clone, Debug)]
pub(crate) struct Caller<O: Oracle> {
    n: u32,
    joined: Time,
    deadline: Option<Time>,
    pub(crate) fate: Fate,
    price: Option<O::Price>,
    pub(crate) given_back: bool,
    /// [`Line::age`] when this was granted.
    pub(crate) age: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Line<O: Oracle> {
    policy: O,
    pub(crate) callers: Vec<Caller<O>>,
    /// Who waits, the first in front.
    pub(crate) queue: Vec<usize>,
    /// Grants that were not given back, the latest last.
    charges: Vec<usize>,
    pub(crate) now: Time,
    /// Nobody is charged for a time before this.
    since: Time,
    catch_up: Time,
    tolerance: Time,
    /// How often the rate changed, there was a pause, or something was refunded on which others
    /// had built.
    pub(crate) age: usize,
    /// Nothing was refunded on which others had built since the last grant.
    last_is_untouched: bool,
    /// Somebody's time was up so close to a grant that rounding decides; what follows proves
    /// nothing.
    pub(crate) doubtful: bool,
}

impl<O: Oracle> Line<O> {
    pub(crate) fn new(policy: O, catch_up: Time, tolerance: Time) -> Self {
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
            last_is_untouched: true,
            doubtful: false,
        }
    }

    fn charge_time(&self, policy: &O, joined: Time) -> Time {
        policy.due().max(joined).max(self.since).max(self.now - self.catch_up)
    }

    /// When somebody who comes now would be granted if nobody leaves: everybody in front is charged
    /// in turn.
    pub(crate) fn projected(&self, without: Option<usize>) -> Time {
        let mut policy = self.policy.clone();
        let mut at = self.now.max(self.since);
        for &ahead in self.queue.iter().filter(|&&id| Some(id) != without) {
            at = at.max(policy.due());
            policy.charge(at, self.callers[ahead].n);
        }
        at.max(policy.due())
    }

    fn grant(&mut self, id: usize, at: Time) {
        let n = self.callers[id].n;
        if n > 0 {
            self.callers[id].price = Some(self.policy.charge(at, n));
            self.charges.push(id);
            self.last_is_untouched = true;
            self.since = self.since.max(at);
        }
        self.callers[id].fate = Fate::Granted { at };
        self.callers[id].age = self.age;
    }

    fn refuse(&mut self, id: usize, due: Time) {
        let retry_after = (due - self.now).max(0);
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
        while let Some(&head) = self.queue.first() {
            let Caller { joined, deadline, .. } = self.callers[head];
            let at = self.charge_time(&self.policy, joined);
            if deadline.is_some_and(|deadline| (at - deadline).abs() <= self.tolerance) {
                self.doubtful |= self.tolerance > 0;
            }
            if deadline.is_some_and(|deadline| at > deadline) {
                self.refuse(head, at);
                self.depart(head);
            } else if at <= self.now {
                self.queue.remove(0);
                self.grant(head, at);
            } else {
                break;
            }
        }
        while let Some((deadline, id)) = self.next_deadline()
            && deadline <= self.now
        {
            self.refuse(id, self.projected(Some(id)));
            self.depart(id);
        }
    }

    fn next_deadline(&self) -> Option<(Time, usize)> {
        self.queue.iter().filter_map(|&id| Some((self.callers[id].deadline?, id))).min()
    }

    /// When something happens next by itself.
    pub(crate) fn next_event(&self) -> Option<Time> {
        let head = *self.queue.first()?;
        let due = self.charge_time(&self.policy, self.callers[head].joined);
        let deadline = self.next_deadline().map(|(deadline, _)| deadline);
        Some(deadline.map_or(due, |deadline| deadline.min(due)))
    }

    pub(crate) fn advance(&mut self, span: Time) {
        let end = self.now + span;
        while let Some(event) = self.next_event().filter(|&event| event <= end) {
            self.now = event;
            self.pump();
        }
        self.now = end;
    }

    /// Whether a grant is so close to now that rounding decides on which side it lies.
    pub(crate) fn on_the_edge(&self) -> bool {
        let near = |time: Time| (time - self.now).abs() <= self.tolerance;
        let just_granted = self.charges.last().map(|&id| self.callers[id].fate);
        self.tolerance > 0
            && (near(self.policy.due())
                || self.next_event().is_some_and(near)
                || matches!(just_granted, Some(Fate::Granted { at }) if near(at) && at > 0))
    }

    /// The oracle leaves some room to what is not its subject: no two deadlines at one moment, and
    /// none where rounding decides.
    pub(crate) fn settle_timeout(&self, timeout: Time) -> Time {
        let due = self.projected(None);
        let unclear = |deadline: Time| {
            self.tolerance > 0 && (deadline - due).abs() <= self.tolerance
                || self.queue.iter().any(|&id| self.callers[id].deadline == Some(deadline))
        };
        (timeout..).find(|&timeout| !unclear(self.now + timeout)).expect("room for a deadline")
    }

    pub(crate) fn arrive(&mut self, n: u32, timeout: Option<Time>) -> usize {
        let id = self.callers.len();
        let deadline = timeout.map(|timeout| self.now + timeout);
        let (joined, age) = (self.now, self.age);
        let fate = Fate::Waiting;
        let caller = Caller { n, joined, deadline, fate, price: None, given_back: false, age };
        self.callers.push(caller);
        let due = self.projected(None);
        if n == 0 || self.queue.is_empty() && due <= self.now {
            self.grant(id, self.now);
        } else if deadline.is_some_and(|deadline| due > deadline) {
            self.refuse(id, due);
        } else {
            self.queue.push(id);
        }
        id
    }

    /// Somebody gives up: its place, or what it was granted.
    pub(crate) fn leave(&mut self, id: usize) {
        match self.callers[id].fate {
            Fate::Waiting => {
                self.depart(id);
                self.callers[id].fate = Fate::Left;
            }
            Fate::Granted { at } if !self.callers[id].given_back => {
                self.callers[id].given_back = true;
                if let Some(price) = self.callers[id].price {
                    let last = self.charges.last() == Some(&id);
                    self.policy.refund(self.now, at, price, last);
                    self.charges.retain(|&other| other != id);
                    self.since = self.since.max(self.now);
                    self.age += usize::from(!last);
                    self.last_is_untouched &= last;
                }
            }
            _ => {}
        }
        self.pump();
    }

    /// The last grant, unless something happened that makes "as if it had never been" hard to say.
    pub(crate) fn last_grant(&self) -> Option<usize> {
        self.charges.last().copied().filter(|_| self.last_is_untouched)
    }

    pub(crate) fn set_rate(&mut self, rate: Fraction) {
        self.policy.set_rate(self.now, rate);
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
