//! What callers are granted or refused, and what they do with it.

use std::mem;

use tollgate::Error;

use crate::law::Charged;
use crate::op::Use;
use crate::run::{Run, Verdict, nanos};
use crate::stage::{Ended, Form, PLACES};
use crate::subject::{Ask, Held, Said};
use crate::task::{attempt, insist};

/// A grant in the hands of its caller.
pub(crate) struct Grant {
    pub(crate) stage: usize,
    held: Box<dyn Held>,
    /// Where it stands in the histories.
    charged: usize,
    /// What it costs by now, and how much of that can come back: not what a settlement has added.
    cost: u32,
    returnable: u32,
}

impl Run {
    pub(crate) fn granted(
        &mut self,
        number: usize,
        ask: &Ask,
        (arrival, joined): (u64, i64),
        (is_new, rung): (bool, Option<i64>),
        held: Box<dyn Held>,
    ) -> Verdict {
        let (now, is_late) = (self.now(), self.time.is_late());
        let stage = &mut self.stages[number];
        let (form, waited) = (stage.plan.form, held.waited());
        let at = joined + nanos(waited);
        if ask.timeout.is_some_and(|timeout| waited > timeout) {
            return Err(format!("{ask:?} waited for {waited:?}"));
        }
        // Where there are two queues, a waiter may be woken between them, and a policy that panics in an alarm wakes all.
        let rung = rung.filter(|_| form.is_one_line());
        let decided = rung.unwrap_or(now);
        let is_exact = !is_late && rung.is_some();
        if at > decided || is_exact && at != decided {
            return Err(format!("{ask:?} is granted at {at}, but was woken at {decided}"));
        }
        let in_pause = |&(from, until): &(i64, i64)| from < at && at < until;
        if form.is_one_line() && ask.n > 0 && stage.pauses.iter().any(in_pause) {
            return Err(format!("{ask:?} is granted at {at}, in a pause: {:?}", stage.pauses));
        }
        if ask.n == 0 {
            return attempt(|| drop(held)).map(drop);
        }
        let cost = held.cost();
        if cost > ask.n {
            return Err(format!("{ask:?} got {cost}"));
        }
        let is_first = form.is_in_order() && !stage.plan.has_ranks;
        if is_new && is_first && insist(|| stage.subject.queue_len())? > 0 {
            return Err(format!("{ask:?} overtakes those that wait"));
        }
        stage.tally.granted += 1;
        stage.tally.waited += waited;
        stage.net = stage.net.map(|net| net + i64::from(cost));
        stage.line.push(Ended { arrival, at, granted: true });
        // A caller that is polled late comes to the second queue later than its waits say.
        let at_last = (at, if form.is_one_line() { at } else { now });
        // When the first of two limiters granted it is not known.
        let at_first = if form.is_of_two() { (joined, at_last.1) } else { at_last };
        let charged = [at_first, at_last].map(|(from, until)| Charged { from, until, n: cost });
        let charged = stage.charge(charged);
        if stage.plan.holds_places() {
            stage.places += cost;
            if stage.places > PLACES {
                return Err(format!("{} places are held", stage.places));
            }
        }
        self.grants.push(Grant { stage: number, held, charged, cost, returnable: cost });
        Ok(())
    }

    /// `ended`: the number of its arrival, and when it was refused, if that is known.
    pub(crate) fn refused(
        &mut self,
        stage: usize,
        ask: &Ask,
        ended: Option<(u64, i64)>,
        error: &Error,
    ) -> Verdict {
        let stage = &mut self.stages[stage];
        let plan = stage.plan;
        let is_meant = match error {
            Error::Closed => stage.closed,
            Error::Denied { .. } => ask.timeout.is_some(),
            Error::QueueFull { .. } => plan.max_waiters < usize::MAX,
            Error::ExceedsCapacity(_) => ask.n > 5,
            Error::TooManyKeys { .. } => plan.form == Form::Key,
            _ => false,
        };
        if !is_meant {
            return Err(format!("{ask:?} is refused: {error:?}"));
        }
        if ask.n > 0 {
            stage.tally.refused += 1;
            if let Some((arrival, at)) = ended {
                stage.line.push(Ended { arrival, at, granted: false });
            }
        }
        Ok(())
    }

    /// A grant is used, and goes back to the others if there is more to do with it.
    pub(crate) fn finish(&mut self, mut grant: Grant, by: Use) -> Verdict {
        let stage = &mut self.stages[grant.stage];
        let cost = grant.cost;
        let actual = match by {
            Use::Refund => 0,
            Use::SettleUp(more) if !stage.plan.holds_places() => cost.saturating_add(more),
            Use::SettleDown(n) => n.min(cost),
            Use::Meter(n) if !stage.plan.holds_places() => n,
            Use::Meter(n) => n.min(cost),
            _ => cost,
        };
        for history in &mut stage.histories {
            let charged = &mut history[grant.charged];
            charged.n = charged.n.min(actual);
        }
        let more = actual.saturating_sub(cost);
        let back = cost.saturating_sub(actual).min(grant.returnable);
        grant.returnable -= back;
        stage.net = stage.net.map(|net| net + i64::from(more) - i64::from(back));
        let goes_on = matches!(by, Use::SettleUp(_) | Use::SettleDown(_) | Use::Hear(_));
        if stage.plan.holds_places() {
            stage.places -= if goes_on { cost - actual } else { cost };
        }
        grant.cost = actual;
        let is_one_line = stage.plan.form.is_one_line();
        let leaks = self.setup.leaks && !stage.plan.holds_places();
        if goes_on {
            let held = &mut grant.held;
            if let Use::Hear(said) = by {
                attempt(|| held.hear(said))?;
                // A pause discards what is stored.
                stage.net = stage.net.filter(|_| matches!(said, Said::Accepted));
            } else if let Some(Err(error)) = attempt(|| held.settle(actual))? {
                return Err(format!("{actual} for {cost} is refused: {error}"));
            }
            self.grants.push(grant);
            return Ok(());
        }
        let held = grant.held;
        let done = match by {
            Use::Refund => attempt(|| held.refund())?,
            Use::Meter(_) => attempt(|| held.meter(actual))?,
            Use::Leak if leaks && is_one_line => {
                mem::forget(held);
                Some(())
            }
            _ => attempt(|| drop(held))?,
        };
        if done.is_none() {
            stage.net = None;
        }
        Ok(())
    }
}
