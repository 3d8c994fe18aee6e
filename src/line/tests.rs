//! An alarm that is late, told to the line directly.

use std::task::Waker;
use std::time::Duration;

use super::{Entered, Key, Line, Standing};
use crate::clock::{Alarm, Steady};
use crate::error::Error;
use crate::policy::Policy;
use crate::policy::smooth_bursty::SmoothBursty;
use crate::policy::smooth_warming_up::SmoothWarmingUp;
use crate::units::{Nanos, Rate};

const SECOND: Duration = Duration::from_secs(1);

fn at(time: Duration) -> Nanos {
    Nanos::ZERO.saturating_add(time)
}

fn line<P: Policy<Cost = u32>>(policy: P) -> Line<P> {
    let state = policy.start(Nanos::ZERO);
    Line::new(
        policy,
        state,
        Steady::new(Nanos::ZERO, Duration::ZERO),
        Alarm::Never,
        Some(Box::default()),
    )
}

fn join<P: Policy<Cost = u32>>(line: &Line<P>, max_wait: Option<Duration>) -> Key {
    match line.enter(|| Nanos::ZERO, 1, max_wait) {
        Ok(Entered::Waiting(key)) => key,
        Ok(Entered::Granted(_)) => panic!("nothing should be ready"),
        Err(error) => panic!("{error}"),
    }
}

/// How many wait after the alarm has gone off at `time`.
fn waiting_after<P: Policy<Cost = u32>>(line: &Line<P>, time: Duration) -> usize {
    line.turn(|| at(time));
    line.touch(|| at(time), |inner, _| inner.queue_len())
}

/// Three hundred wait at five a second, and the process is stopped for a minute: what is stored may
/// go at once, and no more.
#[test]
fn a_stopped_process_does_not_let_out_at_once_what_piled_up() {
    fn stopped<P: Policy<Cost = u32>>(policy: P, at_once: usize) {
        let line = line(policy);
        assert!(line.enter(|| Nanos::ZERO, 1, None).is_ok());
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
    assert!(line.enter(|| Nanos::ZERO, 1, None).is_ok());
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
    assert!(line.enter(|| Nanos::ZERO, 1, None).is_ok());
    let timeout = Duration::from_millis(200);
    let key = join(&line, Some(timeout));
    let late = || at(timeout + Duration::from_millis(1));
    line.turn(late);
    let standing = line.touch(late, |inner, _| inner.poll(key, Waker::noop()));
    let Standing::Over(Ok(charge)) = standing else { panic!("it was due in time") };
    assert_eq!(charge.waited, 200_000_000);
}

#[test]
fn a_grant_that_comes_far_too_late_is_refused() {
    let line = line(SmoothBursty::new(Rate::per_second(5.0)));
    assert!(line.enter(|| Nanos::ZERO, 1, None).is_ok());
    let key = join(&line, Some(Duration::from_millis(200)));
    line.turn(|| at(60 * SECOND));
    let standing = line.touch(|| at(60 * SECOND), |inner, _| inner.poll(key, Waker::noop()));
    assert!(matches!(standing, Standing::Over(Err(Error::Denied { .. }))));
}
