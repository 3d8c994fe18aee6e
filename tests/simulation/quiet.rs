//! Time goes on, until all is quiet; what must hold then.

use std::mem;
use std::time::Duration;

use crate::heap::Samples;
use crate::op::Use;
use crate::run::{Run, Verdict, nanos};
use crate::stage::{Form, Plan, Rule, Stage};
use crate::tally::Tally;
use crate::task::{Kind, Task, insist};
use crate::time::Time;

/// Longer than any wait of a run, and than a server may stop a limiter.
const LONG: Duration = Duration::from_secs(1 << 20);

/// A timer of tokio's is late by so much at most.
const TICK: i64 = 2_000_000;

/// A run that is over.
pub(crate) struct Ended {
    /// How long it was.
    pub(crate) nanos: u64,
    /// Each time that all was quiet.
    pub(crate) memory: Samples,
    /// What the callers of each stage counted, since it was made.
    pub(crate) counts: Vec<(Plan, Tally)>,
}

impl Run {
    /// Moves the time, though wakers may panic on the way.
    pub(crate) fn advance(&mut self, span: Duration) -> Verdict {
        let end = self.now().saturating_add(nanos(span));
        insist(|| self.time.advance(self.until(end)))?;
        if self.time.is_late() { Ok(()) } else { self.check_deadlines(0) }
    }

    fn until(&self, end: i64) -> Duration {
        Duration::from_nanos(u64::try_from(end - self.now()).unwrap_or(0))
    }

    pub(crate) fn catch_up(&mut self) -> Verdict {
        insist(|| self.time.catch_up())?;
        self.check_deadlines(if self.time.is_late() { TICK } else { 0 })
    }

    /// No caller waits for longer than its timeout without being told.
    fn check_deadlines(&self, late: i64) -> Verdict {
        for task in self.tasks.iter().filter(|task| task.waits && task.bell.rung().is_none()) {
            if let (Some(timeout), Some((_, joined))) = (task.ask.timeout, task.joined)
                && joined.saturating_add(nanos(timeout)) + late <= self.now()
            {
                return Err(format!("{:?} of {joined} waits on at {}", task.ask, self.now()));
            }
        }
        Ok(())
    }

    /// Drops all grants, polls all callers, and moves the time on until none waits. Then all counts must be right.
    pub(crate) fn quiet(&mut self) -> Verdict {
        let (mut rounds, mut guess) = (0, Duration::from_millis(1));
        loop {
            while let Some(grant) = self.grants.pop() {
                self.finish(grant, Use::Drop)?;
            }
            let unpolled = |kind: &Kind| matches!(kind, Kind::Place(_));
            while let Some(index) =
                self.tasks.iter().position(|task| unpolled(&task.kind) || task.joined.is_none())
            {
                self.poll(index)?;
            }
            let tasks = self.tasks.len();
            while let Some(id) = self.woken.take(0) {
                if let Some(index) = self.tasks.iter().position(|task| task.id == id) {
                    self.poll(index)?;
                }
            }
            // Nor does any that was leaked, or whose place is kept.
            let lengths = || self.stages.iter().map(|stage| stage.subject.queue_len()).sum();
            let waiting: usize = insist(lengths)?;
            if self.tasks.is_empty() && self.grants.is_empty() && waiting == 0 {
                break;
            }
            if self.tasks.len() < tasks || !self.grants.is_empty() {
                (rounds, guess) = (0, Duration::from_millis(1));
                continue;
            }
            let next = self.time.next(guess);
            rounds += 1;
            let Some(span) = next.filter(|_| rounds < 5000 && guess < LONG) else {
                let of = |task: &Task| (task.stage, task.ask, task.joined);
                return Err(format!(
                    "nothing is due, and {waiting} wait: {:?}",
                    self.tasks.iter().map(of).collect::<Vec<_>>()
                ));
            };
            self.advance(span)?;
            self.catch_up()?;
            if let Time::Tokio(..) = *self.time {
                guess = guess * 5 / 4 + Duration::from_micros(1);
            }
        }
        for stage in 0..self.stages.len() {
            self.check_counts(stage)?;
            self.check_net(stage)?;
            let is_late = self.time.is_late();
            self.stages[stage].compact(is_late)?;
            if self.stages[stage].was_reset {
                self.stages[stage].histories.iter_mut().for_each(Vec::clear);
                self.stages[stage].was_reset = false;
            }
            if self.stages[stage].closed {
                self.end_stage(stage)?;
                let plan = self.stages[stage].plan;
                self.stages[stage] = Stage::new(plan, &self.clock);
            }
        }
        self.memory.add();
        Ok(())
    }

    fn check_counts(&self, stage: usize) -> Verdict {
        let Stage { subject, plan, tally, .. } = &self.stages[stage];
        let stats = subject.stats();
        match plan.form {
            // A call that the server sends back to its gate counts twice.
            form if form.hears() && stats.granted >= tally.granted => Ok(()),
            _ => tally.check(stats).map_err(|reason| format!("{plan:?}: {reason}")),
        }
    }

    /// Each permit that has come is there, or was taken and kept.
    pub(crate) fn check_net(&self, stage: usize) -> Verdict {
        let limited = &self.stages[stage];
        let Some(net) = limited.net.filter(|_| !limited.closed) else {
            return Ok(());
        };
        if self.tasks.iter().any(|task| task.stage == stage) {
            return Ok(());
        }
        let age = self.now() - limited.born;
        // That a limiter begins at a whole nanosecond is rounded.
        let [came, rounded] = [age, age + 1].map(|age| limited.plan.came(age));
        let there = i64::from(insist(|| limited.subject.quota())?.remaining);
        // In one that has been full, permits were lost.
        let was_full = !self.setup.is_long && came > i64::from(u32::MAX / 2);
        if was_full || [came, rounded].iter().any(|came| there == (came - net).max(0)) {
            Ok(())
        } else {
            Err(format!("{:?}: {came} came, {net} are kept, and {there} are there", limited.plan))
        }
    }

    /// The grants of all its time.
    fn end_stage(&mut self, stage: usize) -> Verdict {
        let is_late = self.time.is_late();
        let stage = &mut self.stages[stage];
        let plan = stage.plan;
        let checked = stage.check_order(is_late).and_then(|()| stage.check_laws());
        checked.map_err(|reason| format!("{plan:?}: {reason}"))
    }

    /// After the last operation.
    pub(crate) fn end(mut self) -> Result<Ended, String> {
        self.quiet()?;
        let nanos = self.clock.now().get();
        // A caller whose place is kept may pass its second queue only now, where alarms are late.
        for _ in 0..2 {
            self.advance(LONG)?;
            self.catch_up()?;
        }
        for stage in 0..self.stages.len() {
            self.end_stage(stage)?;
            let Stage { plan, subject, net, .. } = &self.stages[stage];
            let quota = insist(|| subject.quota())?;
            let is_full = quota.remaining == quota.limit;
            let fills = plan.form != Form::Adaptive && !plan.has(Rule::Hoard);
            if fills && !is_full && net.is_none() {
                return Err(format!("{plan:?} is idle, and not full: {quota:?}"));
            }
        }
        let counts = self.stages.iter().map(|stage| (stage.plan, stage.tally));
        Ok(Ended { nanos, memory: mem::take(&mut self.memory), counts: counts.collect() })
    }
}
