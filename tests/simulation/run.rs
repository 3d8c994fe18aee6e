//! Takes the operations of a run, one by one, and checks after each what must hold.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tollgate::Clock;

use crate::grants::Grant;
use crate::heap::Samples;
use crate::op::{How, Op, Setup};
use crate::stage::Stage;
use crate::subject::Ask;
use crate::task::{Bell, Kind, Task, Woken, Work, attempt, insist, now};
use crate::time::Time;

pub(crate) type Verdict = Result<(), String>;

pub(crate) struct Run {
    pub(crate) setup: Setup,
    pub(crate) time: Rc<Time>,
    pub(crate) clock: Clock,
    pub(crate) stages: Vec<Stage>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) grants: Vec<Grant>,
    pub(crate) woken: Arc<Woken>,
    arrivals: u64,
    ids: u64,
    /// Each time that all was quiet.
    pub(crate) memory: Samples,
}

/// An ask that no operation made.
const NOTHING: Ask = Ask { n: 0, timeout: None, ahead: Duration::ZERO, tenant: None };

pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).expect("292 years at most")
}

impl Run {
    pub(crate) fn new(setup: &Setup, time: &Rc<Time>) -> Self {
        let clock = time.clock();
        let stages = setup.plans.iter().map(|&plan| Stage::new(plan, &clock)).collect();
        Self {
            setup: setup.clone(),
            time: Rc::clone(time),
            clock,
            stages,
            tasks: Vec::new(),
            grants: Vec::new(),
            woken: Arc::default(),
            arrivals: 0,
            ids: 0,
            memory: Samples::default(),
        }
    }

    pub(crate) fn now(&self) -> i64 {
        now(&self.clock)
    }

    pub(crate) fn take(&mut self, op: Op) -> Verdict {
        let of_tasks = |pick: usize| (!self.tasks.is_empty()).then(|| pick % self.tasks.len());
        match op {
            Op::Arrive { stage, ask, how } => self.arrive(stage, ask, how)?,
            Op::TakeRest(stage) => {
                let n = insist(|| self.stages[stage].subject.quota())?.remaining;
                let ask = Ask { n, timeout: Some(Duration::ZERO), ..NOTHING };
                self.arrive(stage, ask, How::Polled)?;
            }
            Op::Run { stage, n, steps, actual } => {
                let (work, future) = Work::new(&self.clock, steps, actual);
                let future = self.stages[stage].subject.run(n, future);
                let index = self.spawn(stage, Kind::Run(future, work), Ask { n, ..NOTHING });
                self.poll(index)?;
            }
            Op::Poll(pick) => self.poll_woken(pick)?,
            Op::PollEarly(pick) => {
                if let Some(index) = of_tasks(pick) {
                    self.poll(index)?;
                }
            }
            Op::Move(pick) => {
                if let Some(index) = of_tasks(pick) {
                    self.poll_as(index, true)?;
                }
            }
            Op::Poison(pick) => {
                if let Some(index) = of_tasks(pick).filter(|_| self.setup.panics) {
                    self.tasks[index].bell.is_poisoned.store(true, Relaxed);
                }
            }
            Op::Leave(pick) => {
                if let Some(index) = of_tasks(pick) {
                    let task = self.tasks.swap_remove(index);
                    self.leave(task)?;
                }
            }
            Op::Leak(pick) => {
                if let Some(index) = of_tasks(pick) {
                    self.leak(index);
                }
            }
            Op::Use { grant, by } => {
                if !self.grants.is_empty() {
                    let grant = self.grants.swap_remove(grant % self.grants.len());
                    self.finish(grant, by)?;
                }
            }
            Op::Advance(span) => self.advance(span)?,
            Op::ToNextAlarm => {
                if let Some(span) = self.time.next(Duration::from_millis(1)) {
                    self.advance(span)?;
                    self.catch_up()?;
                }
            }
            Op::CatchUp => self.catch_up()?,
            Op::Close(stage) => {
                attempt(|| self.stages[stage].subject.close())?;
                self.has_closed(stage)?;
            }
            Op::Drain(stage) => {
                let future = self.stages[stage].subject.drain();
                let index = self.spawn(stage, Kind::Drain(future), NOTHING);
                self.poll(index)?;
                self.has_closed(stage)?;
            }
            Op::Quiet => self.quiet()?,
            _ => self.steer(op)?,
        }
        Ok(())
    }

    /// It is closed now, also if a waker panicked.
    fn has_closed(&mut self, stage: usize) -> Verdict {
        let stage = &mut self.stages[stage];
        if !insist(|| stage.subject.is_closed())? {
            return Err(format!("{:?} is open after it was closed", stage.plan));
        }
        stage.closed = true;
        Ok(())
    }

    /// Calls that change a limiter, or look at it.
    fn steer(&mut self, op: Op) -> Verdict {
        let (stage, changes) = match op {
            Op::Pause(stage, span) => {
                (stage, attempt(|| self.stages[stage].subject.pause_for(span)).map(drop))
            }
            Op::Resume(stage) => (stage, attempt(|| self.stages[stage].subject.resume()).map(drop)),
            Op::Change(stage, draw) => {
                (stage, attempt(|| self.stages[stage].change(draw)).map(drop))
            }
            Op::Reset(stage) => (stage, attempt(|| self.stages[stage].subject.reset()).map(drop)),
            Op::Look(stage) => {
                let (subject, n) = (&self.stages[stage].subject, 3);
                attempt(|| subject.look(n))?;
                for task in self.tasks.iter().filter(|task| task.stage == stage) {
                    if let Kind::Place(place) = &task.kind {
                        attempt(|| place.delay())?;
                    }
                }
                self.check_net(stage)?;
                return Ok(());
            }
            Op::Crowd(stage, key) => {
                let stage = &mut self.stages[stage];
                match attempt(|| stage.crowd(key))? {
                    Some(Some(Ok(()))) => stage.tally.granted += 1,
                    Some(Some(Err(_))) => stage.tally.refused += 1,
                    Some(None) => {}
                    None => stage.tally.blind += 1,
                }
                return Ok(());
            }
            _ => unreachable!("taken before"),
        };
        changes?;
        let number = stage;
        let stage = &mut self.stages[number];
        stage.net = None;
        let now = now(&self.clock);
        match op {
            Op::Pause(_, span) => stage.pauses.push((now, now.saturating_add(nanos(span)))),
            Op::Resume(_) | Op::Reset(_) => {
                stage.pauses.iter_mut().for_each(|pause| pause.1 = pause.1.min(now));
            }
            _ => {}
        }
        if let Op::Reset(_) = op {
            // Permits of before are not to be given back any more, but callers that leave do so.
            stage.check_laws()?;
            stage.was_reset = true;
        }
        Ok(())
    }

    fn arrive(&mut self, stage: usize, ask: Ask, how: How) -> Verdict {
        let subject = &self.stages[stage].subject;
        if matches!(how, How::Polled | How::Spawned) || ask.n == 0 {
            let call = subject.ask(&ask);
            let index = self.spawn(stage, Kind::Call(call), ask);
            if how == How::Spawned {
                self.woken.push(self.tasks[index].id);
                return Ok(());
            }
            return self.poll(index);
        }
        let Some(entered) = attempt(|| subject.enter(&ask))? else {
            self.lost(stage);
            return Ok(());
        };
        match entered {
            Err(error) => {
                self.arrivals += 1;
                let joined = (self.arrivals, self.now());
                self.refused(stage, &ask, Some(joined), &error)
            }
            Ok(place) => {
                let index = self.spawn(stage, Kind::Place(place), ask);
                self.join(index);
                Ok(())
            }
        }
    }

    fn spawn(&mut self, stage: usize, kind: Kind, ask: Ask) -> usize {
        self.ids += 1;
        let bell = Bell::new(self.ids, &self.woken, &self.clock);
        let (id, came_late) = (self.ids, false);
        self.tasks.push(Task { id, stage, kind, ask, bell, joined: None, came_late, waits: false });
        self.tasks.len() - 1
    }

    pub(crate) fn join(&mut self, index: usize) -> (u64, i64) {
        let now = self.now();
        let (task, arrivals) = (&mut self.tasks[index], &mut self.arrivals);
        let closed = self.stages[task.stage].closed;
        *task.joined.get_or_insert_with(|| {
            *arrivals += 1;
            task.came_late = closed;
            (*arrivals, now)
        })
    }
}
