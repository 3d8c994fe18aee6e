//! Calls that are polled, that end, and that leave.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate::Error;

use crate::law::Charged;
use crate::run::{Run, Verdict};
use crate::stage::Ended;
use crate::subject::Answer;
use crate::task::{Bell, Kind, Task, attempt};

enum Outcome {
    Call(Answer),
    Run(Result<u32, Error>),
    Drained,
}

impl Run {
    pub(crate) fn poll_woken(&mut self, pick: usize) -> Verdict {
        let Some(id) = self.woken.take(pick) else { return Ok(()) };
        // It may have been polled early, and be gone.
        match self.tasks.iter().position(|task| task.id == id) {
            Some(index) => self.poll(index),
            None => Ok(()),
        }
    }

    pub(crate) fn poll(&mut self, index: usize) -> Verdict {
        self.poll_as(index, false)
    }

    /// `moves`: with another waker from now on.
    pub(crate) fn poll_as(&mut self, index: usize, moves: bool) -> Verdict {
        let is_new = self.tasks[index].joined.is_none();
        self.join(index);
        let mut task = self.tasks.swap_remove(index);
        let rung = task.bell.rung();
        if moves {
            task.bell = Bell::new(task.id, &self.woken, &self.clock);
        }
        task.bell.reset();
        if let Kind::Place(place) = task.kind {
            task.kind = Kind::Call(place.wait());
        }
        let waker = Waker::from(Arc::clone(&task.bell));
        let mut context = Context::from_waker(&waker);
        let polled = attempt(|| match &mut task.kind {
            Kind::Call(call) => call.as_mut().poll(&mut context).map(Outcome::Call),
            Kind::Run(run, _) => run.as_mut().poll(&mut context).map(Outcome::Run),
            Kind::Drain(drain) => drain.as_mut().poll(&mut context).map(|()| Outcome::Drained),
            Kind::Place(_) => unreachable!("it waits now"),
        })?;
        let stage = &self.stages[task.stage];
        match polled {
            Some(Poll::Pending) => {
                let is_call = matches!(task.kind, Kind::Call(_));
                let is_decided = is_call && stage.plan.form.is_one_line() && rung.is_some();
                // A policy that panics in an alarm wakes all.
                if task.waits && is_decided {
                    return Err(format!("{:?} was woken, and still waits", task.ask));
                }
                task.waits = true;
                self.tasks.push(task);
                Ok(())
            }
            Some(Poll::Ready(outcome)) => {
                // A caller whose alarm is late may look for itself.
                let must_be_woken = task.waits && !self.time.is_late();
                if must_be_woken && rung.is_none() {
                    return Err(format!("{:?} was decided, and not woken", task.ask));
                }
                self.ended(task, (is_new, rung), outcome)
            }
            None => {
                if let Kind::Run(_, work) = &task.kind
                    && work.started().is_some()
                {
                    // It may have been over by then.
                    self.ran(&task, work.actual);
                    self.stages[task.stage].net = None;
                } else if task.ask.n > 0 {
                    self.lost(task.stage);
                }
                attempt(|| drop(task)).map(drop)
            }
        }
    }

    /// A call of which nothing is known, as its caller met a panic.
    pub(crate) fn lost(&mut self, stage: usize) {
        let stage = &mut self.stages[stage];
        stage.tally.blind += 1;
        stage.tally.waited_more = true;
        stage.net = None;
    }

    /// `is_new`: with its first poll.
    fn ended(
        &mut self,
        task: Task,
        (is_new, rung): (bool, Option<i64>),
        outcome: Outcome,
    ) -> Verdict {
        let Task { stage, ask, joined, waits, .. } = &task;
        let joined = joined.expect("it was polled");
        let rung = rung.filter(|_| *waits);
        match outcome {
            Outcome::Drained => Ok(()),
            Outcome::Call(Ok(held)) => {
                if task.came_late && ask.n > 0 {
                    return Err(format!("{ask:?} is granted by a closed limiter"));
                }
                self.granted(*stage, ask, joined, (is_new, rung), held)
            }
            Outcome::Call(Err(error)) | Outcome::Run(Err(error)) => {
                // When a reservation was refused is not known.
                let decided = rung.unwrap_or_else(|| self.now());
                let is_known = *waits || joined.1 == decided;
                self.refused(*stage, ask, is_known.then_some((joined.0, decided)), &error)
            }
            Outcome::Run(Ok(actual)) => {
                self.ran(&task, Some(actual));
                Ok(())
            }
        }
    }

    /// Work that was granted is over: with its cost, or dropped.
    fn ran(&mut self, task: &Task, actual: Option<u32>) {
        let Kind::Run(_, work) = &task.kind else { unreachable!("work") };
        let (from, until) = (task.joined.expect("it was polled").1, work.started().expect("so"));
        let stage = &mut self.stages[task.stage];
        stage.tally.granted += 1;
        stage.tally.waited_more = true;
        let n = task.ask.n.min(actual.unwrap_or(u32::MAX));
        stage.charge([Charged { from, until, n }; 2]);
        stage.net = stage.net.map(|net| net + i64::from(actual.unwrap_or(task.ask.n)));
    }

    /// The future of a task is dropped.
    pub(crate) fn leave(&mut self, task: Task) -> Verdict {
        let now = self.now();
        let rung = task.bell.rung();
        if let Kind::Run(_, work) = &task.kind
            && work.started().is_some()
        {
            self.ran(&task, None);
        } else if let (Some((arrival, _)), Kind::Call(_) | Kind::Place(_) | Kind::Run(..)) =
            (task.joined, &task.kind)
        {
            let stage = &mut self.stages[task.stage];
            let tally = &mut stage.tally;
            let is_known = task.waits && stage.plan.form.is_one_line();
            let is_known = is_known && (rung.is_some() || !self.time.is_late());
            match rung {
                _ if !is_known => tally.blind += 1,
                Some(_) => tally.woken += 1,
                None => tally.left += 1,
            }
            if task.waits {
                stage.line.push(Ended { arrival, at: rung.unwrap_or(now), granted: false });
            }
        }
        attempt(|| drop(task)).map(drop)
    }

    pub(crate) fn leak(&mut self, index: usize) {
        let plan = self.stages[self.tasks[index].stage].plan;
        let is_call = matches!(self.tasks[index].kind, Kind::Call(_));
        if self.setup.leaks && !plan.holds_places() && plan.form.is_one_line() && is_call {
            let task = self.tasks.swap_remove(index);
            let stage = &mut self.stages[task.stage];
            if task.joined.is_some() {
                stage.tally.kept += 1;
                stage.tally.waited_more = true;
                stage.net = None;
            }
            mem::forget(task);
        }
    }
}
