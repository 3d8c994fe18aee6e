//! The word and the mutex under loom: every order in which threads can meet there.
//!
//! `RUSTFLAGS="--cfg tollgate_loom" cargo test --release --lib --no-default-features loom`
//!
//! Each model runs a few calls at once and demands that what they answered, and the state that they
//! left, is that of *some* order of the same calls one after another.

use super::{Change, Charge, Entered, Line, Standing};
use crate::clock::{Alarm, Steady};
use crate::policy::Policy;
use crate::policy::smooth_bursty::SmoothBursty;
use crate::policy::token_bucket::TokenBucket;
use crate::units::{Nanos, Rate};
use loom::sync::Arc;
use loom::thread;
use std::task::Waker;
use std::time::Duration;

const NOW: Nanos = Nanos::new(1_000);
const LATER: Nanos = Nanos::new(10_000);

/// A policy whose state fits the word.
trait Modelled: Policy<Cost = u32> {
    /// With a full store at `NOW`. Prices of 1, 7 and 13 ns a permit: whoever pays one of them leaves
    /// its trace in the position.
    fn at(nanos: u64) -> Self;
}

impl Modelled for SmoothBursty {
    fn at(nanos: u64) -> Self {
        let rate = Rate::every(Duration::from_nanos(nanos));
        Self::new(rate).max_burst(Duration::from_nanos(100))
    }
}

impl Modelled for TokenBucket {
    fn at(nanos: u64) -> Self {
        Self::new(Rate::every(Duration::from_nanos(nanos)), 3)
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    /// Take so many, or be refused.
    Try(u32),
    /// Take so many and give them back.
    TryAndRefund(u32),
    /// Change to so many nanoseconds a permit.
    SetPolicy(u64),
    /// For so many nanoseconds.
    Pause(u64),
}

/// What a thread's calls answered, and the state that all of them left.
type Outcome = (Vec<Vec<bool>>, i128);

fn line<P: Modelled>(now: Nanos) -> Line<P> {
    let policy = P::at(1);
    let state = policy.start(now);
    Line::new(policy, state, Steady::new(now, Duration::ZERO), Alarm::Never, Some(Box::default()))
}

fn perform<P: Modelled>(line: &Line<P>, call: Call) -> bool {
    let entered = |n| line.enter(|| NOW, n, Some(Duration::ZERO));
    match call {
        Call::Try(n) => entered(n).is_ok(),
        Call::TryAndRefund(n) => match entered(n) {
            Ok(Entered::Granted(Charge { receipt, .. })) => {
                let refund = Change::Refund { part: n, receipt };
                line.touch(|| NOW, |inner, now| inner.change(now, refund)).is_ok()
            }
            _ => false,
        },
        Call::SetPolicy(nanos) => {
            line.touch(|| NOW, |inner, now| inner.set_policy(now, P::at(nanos)));
            true
        }
        Call::Pause(nanos) => {
            line.touch(|| NOW, |inner, now| inner.pause(now, Duration::from_nanos(nanos)));
            true
        }
    }
}

fn position<P: Modelled>(line: &Line<P>) -> i128 {
    line.touch(|| NOW, |inner, _| inner.position_for_tests())
}

/// What all orders one after another lead to. A refund is a step of its own.
fn serial_outcomes<P: Modelled>(threads: &'static [&'static [Call]]) -> Vec<Outcome> {
    /// A thread's next call, and whether it has still to give back what it took.
    type Progress<P> = (usize, Option<(u32, <P as Policy>::Receipt)>);

    fn explore<P: Modelled>(
        threads: &[&[Call]],
        progress: &[Progress<P>],
        state: (P, P::State, Nanos),
        answers: &[Vec<bool>],
        found: &mut Vec<Outcome>,
    ) {
        let mut ended = true;
        for (thread, calls) in threads.iter().enumerate() {
            let (next, owed) = progress[thread];
            let mut progress = progress.to_vec();
            let mut answers = answers.to_vec();
            let (mut policy, mut position, mut paused) = state.clone();
            if let Some((n, receipt)) = owed {
                policy.refund(&mut position, NOW, n, receipt);
                progress[thread].1 = None;
            } else if let Some(call) = calls.get(next) {
                let ready = |n| {
                    let at = policy.ready_at(&position, NOW, n).expect("within the horizon");
                    at.earliest() <= NOW && paused <= NOW
                };
                let answer = match *call {
                    Call::Try(n) | Call::TryAndRefund(n) => ready(n),
                    Call::SetPolicy(_) | Call::Pause(_) => true,
                };
                match *call {
                    Call::Try(n) if answer => _ = policy.charge(&mut position, NOW, n),
                    Call::TryAndRefund(n) if answer => {
                        progress[thread].1 = Some((n, policy.charge(&mut position, NOW, n)));
                    }
                    Call::Try(_) | Call::TryAndRefund(_) => {}
                    Call::SetPolicy(nanos) => {
                        let new = P::at(nanos);
                        new.adopt(&policy, &mut position, NOW);
                        policy = new;
                    }
                    Call::Pause(nanos) => {
                        paused = NOW.saturating_add(Duration::from_nanos(nanos));
                        policy.pause(&mut position, NOW, paused);
                    }
                }
                progress[thread].0 += 1;
                answers[thread].push(answer);
            } else {
                continue;
            }
            ended = false;
            explore(threads, &progress, (policy, position, paused), &answers, found);
        }
        if ended {
            let (_, mut position, _) = state;
            let position = (P::ONE_WORD.expect("one").ticket)(&mut position).position;
            found.push((answers.to_vec(), position));
        }
    }

    let mut found = Vec::new();
    let start = (P::at(1), P::at(1).start(Nanos::ZERO), Nanos::ZERO);
    let (progress, answers) = (vec![(0, None); threads.len()], vec![vec![]; threads.len()]);
    explore(threads, &progress, start, &answers, &mut found);
    found
}

/// The last of the threads is the model's own.
fn check<P: Modelled>(preemptions: usize, threads: &'static [&'static [Call]]) {
    let allowed = serial_outcomes::<P>(threads);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let line = Arc::new(line::<P>(Nanos::ZERO));
        let (own, others) = threads.split_last().expect("at least one");
        let run = |line: &Line<_>, calls: &[Call]| -> Vec<bool> {
            calls.iter().map(|&call| perform(line, call)).collect()
        };
        let handles: Vec<_> = others
            .iter()
            .map(|calls| {
                let line = Arc::clone(&line);
                thread::spawn(move || run(&line, calls))
            })
            .collect();
        let own = run(&line, own);
        let mut answers: Vec<_> =
            handles.into_iter().map(|handle| handle.join().expect("no panic")).collect();
        answers.push(own);
        let outcome = (answers, position(&line));
        assert!(allowed.contains(&outcome), "no order gives {outcome:?}, only {allowed:?}");
    });
}

#[test]
fn nobody_pays_an_old_price() {
    use Call::{SetPolicy, Try};
    check::<SmoothBursty>(3, &[&[Try(1), Try(2)], &[SetPolicy(7), SetPolicy(13)]]);
}

/// Where all that is asked for must be there.
#[test]
fn nobody_takes_a_token_twice_or_at_an_old_price() {
    use Call::{SetPolicy, Try};
    check::<TokenBucket>(3, &[&[Try(2), Try(1)], &[Try(2)]]);
    check::<TokenBucket>(2, &[&[Try(2), Try(1)], &[SetPolicy(7), Try(2)]]);
}

#[test]
fn nobody_pays_an_old_price_among_three() {
    use Call::{SetPolicy, Try};
    check::<SmoothBursty>(1, &[&[Try(1)], &[Try(2)], &[SetPolicy(7)]]);
}

#[test]
fn a_refusal_is_by_the_parameters_in_force() {
    use Call::{SetPolicy, Try};
    // After 102 there is a debt of a nanosecond, whatever the price.
    check::<SmoothBursty>(3, &[&[Try(102), Try(1)], &[SetPolicy(7), Try(1)]]);
}

/// The position comes back to where it was, under another price: only its jump at each change keeps
/// the other thread from taking the word for the one that it read.
#[test]
fn a_refund_across_a_change_brings_no_old_word_back() {
    use Call::{SetPolicy, Try, TryAndRefund};
    check::<SmoothBursty>(2, &[&[Try(1)], &[SetPolicy(7), TryAndRefund(3), SetPolicy(1)]]);
    check::<SmoothBursty>(2, &[&[Try(1), Try(1)], &[TryAndRefund(3), SetPolicy(7)]]);
}

#[test]
fn nobody_is_granted_in_a_pause() {
    use Call::{Pause, SetPolicy, Try};
    check::<SmoothBursty>(3, &[&[Try(1), Try(1)], &[Pause(50), SetPolicy(7)]]);
}

/// Waiting, leaving and the alarm: who stays is granted once, who leaves is not charged.
#[test]
fn whoever_stays_is_granted_once_and_whoever_leaves_pays_nothing() {
    loom::model(|| {
        let line = Arc::new(line::<SmoothBursty>(NOW));
        assert!(line.enter(|| NOW, 5, None).is_ok());
        let other = {
            let line = Arc::clone(&line);
            thread::spawn(move || match line.enter(|| NOW, 3, None) {
                Ok(Entered::Waiting(key)) => {
                    line.touch(|| NOW, |inner, now| inner.leave(key, now));
                }
                _ => panic!("it has to wait"),
            })
        };
        let Ok(Entered::Waiting(key)) = line.enter(|| NOW, 1, None) else {
            panic!("it has to wait");
        };
        line.turn(|| LATER);
        other.join().expect("no panic");
        let standing = line.touch(|| LATER, |inner, _| inner.poll(key, Waker::noop()));
        assert!(matches!(standing, Standing::Over(Ok(_))));
        assert_eq!(line.touch(|| LATER, |inner, _| inner.queue_len()), 0);
    });
}
