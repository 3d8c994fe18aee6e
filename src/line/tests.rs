//! An alarm that is late, told to the line directly.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::testing::{self, ask, sound, stand_at};
use super::{Caller, Inner, Line};
use crate::error::Error;
use crate::policy::Policy;
use crate::policy::smooth_bursty::SmoothBursty;
use crate::policy::smooth_warming_up::SmoothWarmingUp;
use crate::policy::token_bucket::TokenBucket;
use crate::units::{Nanos, Rate};
use crate::wait_queue::{Ask, WaiterId};

const SECOND: Duration = Duration::from_secs(1);

fn at(time: Duration) -> Nanos {
    Nanos::ZERO.saturating_add(time)
}

fn line<P: Policy<Cost = u32>>(policy: P) -> Arc<Line<P>> {
    testing::line(policy, Nanos::ZERO)
}

fn join<P: Policy<Cost = u32>>(line: &Arc<Line<P>>, max_wait: Option<Duration>) -> WaiterId {
    match ask(line, Nanos::ZERO, 1, max_wait) {
        Ok(Caller::Waiting(key)) => key,
        Ok(_) => panic!("nothing should be ready"),
        Err(error) => panic!("{error}"),
    }
}

/// How many wait after the alarm has gone off at `time`.
fn waiting_after<P: Policy<Cost = u32>>(line: &Arc<Line<P>>, time: Duration) -> usize {
    stand_at(at(time));
    sound(line);
    line.look(|inner, _| inner.queue_len())
}

/// Three hundred callers wait at five a second, and the process is stopped for a minute: the store may go at once, and no more.
#[test]
fn a_stopped_process_does_not_let_out_at_once_what_piled_up() {
    fn stopped<P: Policy<Cost = u32>>(policy: P, at_once: usize) {
        let line = line(policy);
        assert!(ask(&line, Nanos::ZERO, 1, None).is_ok());
        (0..300).for_each(|_| _ = join(&line, None));
        assert_eq!(waiting_after(&line, 60 * SECOND), 300 - at_once);
        // From then on at the rate again.
        for next in 1..=5 {
            let waiting = waiting_after(&line, 60 * SECOND + next * SECOND / 5);
            assert_eq!(waiting, 300 - at_once - next as usize);
        }
    }
    let rate = Rate::per_second(5.0);
    // A full store of one second and one more, which the next caller pays for.
    stopped(SmoothBursty::new(rate), 6);
    stopped(SmoothBursty::new(rate).max_burst(Duration::ZERO), 1);
    // Warm again: three times the interval when cold would give fewer.
    stopped(SmoothWarmingUp::new(rate, Duration::from_nanos(1)), 1);
}

#[test]
fn a_late_alarm_costs_no_throughput() {
    let line = line(SmoothBursty::new(Rate::per_second(1000.0)).max_burst(Duration::ZERO));
    assert!(ask(&line, Nanos::ZERO, 1, None).is_ok());
    (0..1000).for_each(|_| _ = join(&line, None));
    // Each alarm is 0.9 ms late: each grant comes late, but none later than that.
    for millis in 1..=1000 {
        let late = Duration::from_millis(millis) + Duration::from_micros(900);
        let granted = usize::try_from(millis).expect("small");
        assert_eq!(waiting_after(&line, late), 1000 - granted);
    }
}

#[test]
fn a_grant_that_was_due_in_time_is_given_although_the_alarm_is_late() {
    let line = line(SmoothBursty::new(Rate::per_second(5.0)));
    assert!(ask(&line, Nanos::ZERO, 1, None).is_ok());
    let timeout = Duration::from_millis(200);
    let key = join(&line, Some(timeout));
    stand_at(at(timeout + Duration::from_millis(1)));
    sound(&line);
    let standing = line.with_lock(|inner, _| inner.poll(key, Waker::noop()));
    let Ok(Ok(charge)) = standing else { panic!("it was due in time") };
    assert_eq!(charge.waited, 200_000_000);
}

#[test]
fn a_grant_that_comes_far_too_late_is_refused() {
    let line = line(SmoothBursty::new(Rate::per_second(5.0)));
    assert!(ask(&line, Nanos::ZERO, 1, None).is_ok());
    let key = join(&line, Some(Duration::from_millis(200)));
    stand_at(at(60 * SECOND));
    sound(&line);
    let standing = line.with_lock(|inner, _| inner.poll(key, Waker::noop()));
    assert!(matches!(standing, Ok(Err(Error::Denied { .. }))));
}

/// The word with all that it means, as it stands in memory.
fn word<P: Policy>(line: &Arc<Line<P>>) -> String {
    format!("{:?}", line.word.as_ref().expect("a policy that fits a word"))
}

/// The mutex opens a slot in which the word decides.
fn open_slot(line: &Arc<Line<SmoothBursty>>, now: Nanos) {
    stand_at(now);
    line.with_lock(|_, _| ());
}

/// A permit, if the word can give it.
fn by_the_word(line: &Arc<Line<SmoothBursty>>, now: Nanos) -> Option<Result<(), Error>> {
    stand_at(now);
    line.decide(1, Some(Duration::ZERO)).map(|charge| charge.map(drop))
}

#[test]
fn an_observer_leaves_the_word_as_it_is() {
    let line = line(SmoothBursty::new(Rate::per_second(5.0)));
    for time in [Duration::ZERO, SECOND, 60 * SECOND, 3600 * SECOND] {
        let now = at(time);
        open_slot(&line, now);
        assert_eq!(by_the_word(&line, now), Some(Ok(())));
        let before = word(&line);
        let unchanged = |what| assert_eq!(word(&line), before, "{what}");
        line.look(|inner, _| inner.queue_len());
        unchanged("the length of the line");
        line.look(|inner, now| inner.available(now));
        unchanged("available");
        line.look(|inner, now| inner.quota(now));
        unchanged("the quota");
        assert_eq!(line.policy(), SmoothBursty::new(Rate::per_second(5.0)));
        unchanged("the policy");
        line.stats();
        unchanged("the counts");
        let word = line.word.as_ref().expect("a policy that fits a word");
        assert!(word.position().is_some(), "it is not locked");
    }
    assert_eq!(line.stats().granted, 4);
}

/// The word does not record how full the store was, so it decides for a 64th of the time only in which the
/// store fills. A burst that fills within a millisecond is not worth that.
#[test]
fn the_word_decides_for_a_slot_of_time() {
    let line = line(SmoothBursty::new(Rate::per_second(6_400.0)));
    let after = |nanos| at(60 * SECOND + Duration::from_nanos(nanos));
    open_slot(&line, after(0));
    assert_eq!(by_the_word(&line, after(15_624_000)), Some(Ok(())));
    assert_eq!(by_the_word(&line, after(15_625_002)), None);
    assert!(ask(&line, after(15_625_002), 1, None).is_ok());
    assert_eq!(by_the_word(&line, after(31_000_000)), Some(Ok(())));

    let even = self::line(SmoothBursty::new(Rate::per_second(1.0)).max_burst(SECOND / 1000));
    open_slot(&even, after(0));
    assert_eq!(by_the_word(&even, at(3600 * SECOND)), Some(Ok(())));
}

/// A call for more than a 64th of the store, or later than that, leaves the levels that it would leave under the
/// lock. The word is open again after it.
#[test]
fn what_the_word_does_not_decide_alone_is_recorded() {
    let policy = TokenBucket::new(Rate::per_second(10.0), 10);
    let ([short, long], mut open) = ([line(policy.clone()), line(policy)], 0);
    let mut time = Duration::ZERO;
    for (step, permits) in [(0, 2), (0, 3), (70, 2), (3, 2), (900, 1), (20, 4), (40, 1), (15, 3)] {
        time += Duration::from_millis(step);
        let now = at(time);
        let mut charges = [None, None];
        if let Ok(Caller::Granted(charge)) = ask(&short, now, permits, Some(Duration::ZERO)) {
            charges[0] = charge.receipt;
        }
        let enter = |inner: &mut Inner<_>, now| {
            inner.enter(now, &Ask::new(permits, Some(Duration::ZERO)), None)
        };
        if let Ok(Caller::Granted(charge)) = long.with_lock(enter) {
            charges[1] = charge.receipt;
        }
        assert!(charges[0].is_some());
        assert_eq!(charges[0], charges[1]);
        open += usize::from(short.word.as_ref().expect("a word").position().is_some());
    }
    let states = [&short, &long].map(|line| line.with_lock(|it, _| it.state.clone()));
    assert_eq!(states[0], states[1]);
    assert_eq!(open, 8);
}
