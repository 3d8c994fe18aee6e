//! The runs that are published for Guava's limiter, through the public API of `tollgate` and on the
//! model, in microseconds.
//!
//! The model must give Guava's very numbers. `tollgate` must give what they are before the cut:
//! 666,667 where Guava says 666,666.

use std::time::Duration;

use super::{
    limiter,
    model::Model,
    subject::{Subject, micros},
    trace::{Kind, Limiter},
};

/// The caller that comes first pays nothing; each later one pays for the one before.
#[test]
fn five_a_second() {
    let mut run = Run::bursty(5.0);
    run.acquire(&[1; 7]);
    run.assert_waits(&[0, 200_000, 200_000, 200_000, 200_000, 200_000, 200_000]);
}

/// Two seconds of idle time store one second's permits: two, and the third is prepaid.
#[test]
fn two_a_second_after_idle_time() {
    let mut run = Run::bursty(2.0);
    run.idle(Duration::from_secs(2));
    run.acquire(&[1; 8]);
    run.assert_waits(&[0, 0, 0, 500_000, 500_000, 500_000, 500_000, 500_000]);
}

/// The debt of the third permit after the pause is paid by the next caller.
#[test]
fn two_a_second_with_a_pause_twice() {
    let mut run = Run::bursty(2.0);
    for _ in 0..2 {
        run.acquire(&[1]);
        run.idle(Duration::from_secs(2));
        run.acquire(&[1; 3]);
    }
    run.assert_waits(&[0, 0, 0, 0, 500_000, 0, 0, 0]);
}

/// A large request is granted at once and the one after it waits.
#[test]
fn large_requests_are_paid_by_the_next_caller() {
    let mut run = Run::bursty(5.0);
    run.acquire(&[5, 1, 1, 1, 5, 1, 1, 1]);
    run.assert_waits(&[0, 1_000_000, 200_000, 200_000, 200_000, 1_000_000, 200_000, 200_000]);
}

/// A cold limiter starts at almost three times its interval and comes down in a straight line.
#[test]
fn warming_up() {
    let mut run = Run::warming_up_in_three_seconds(2.0);
    run.acquire(&[1; 8]);
    run.assert_waits_cut(&WARMING_UP, &WARMING_UP_CUT);
}

/// 3.5 s pay the last permit's half second and make the limiter wholly cold again.
#[test]
fn warming_up_again_after_idle_time() {
    let mut run = Run::warming_up_in_three_seconds(2.0);
    run.acquire(&[1; 8]);
    run.idle(Duration::from_millis(3_500));
    run.acquire(&[1; 8]);
    run.assert_waits_cut(&[WARMING_UP; 2].concat(), &[WARMING_UP_CUT; 2].concat());
}

const WARMING_UP: [i64; 8] = [0, 1_333_333, 1_000_000, 666_667, 500_000, 500_000, 500_000, 500_000];
const WARMING_UP_CUT: [i64; 8] =
    [0, 1_333_333, 999_999, 666_666, 500_000, 500_000, 500_000, 500_000];

/// The same calls to the model and to `tollgate`, and the waits of both.
struct Run {
    model: Model,
    model_waits: Vec<i64>,
    subject: Subject,
    subject_waits: Vec<Duration>,
}

impl Run {
    fn bursty(permits_per_second: f64) -> Self {
        Self::new(Limiter { permits_per_second, kind: Kind::Bursty { max_burst_seconds: 1.0 } })
    }

    fn warming_up_in_three_seconds(permits_per_second: f64) -> Self {
        Self::new(Limiter {
            permits_per_second,
            kind: Kind::WarmingUp { warm_up_micros: 3_000_000, cold_factor: 3.0 },
        })
    }

    fn new(limiter: Limiter) -> Self {
        Self {
            model: Model::new(limiter),
            model_waits: Vec::new(),
            subject: Subject::new(limiter, limiter::make),
            subject_waits: Vec::new(),
        }
    }

    fn idle(&mut self, time: Duration) {
        self.model.advance(nearest_micros(time));
        self.subject.advance(time);
    }

    fn acquire(&mut self, requests: &[u32]) {
        for &permits in requests {
            self.model_waits.push(self.model.acquire(permits));
            let wait = self.subject.acquire(permits).expect("a permit after a wait");
            self.subject_waits.push(wait);
        }
    }

    /// Where nothing is cut both give the same. `tollgate` is not a nanosecond later, for a timeout
    /// of exactly the debt must be enough, and one earlier only: its full store is that much larger.
    fn assert_waits(&self, both: &[i64]) {
        for (&wait, &exact) in self.subject_waits.iter().zip(both) {
            let early = micros(exact).checked_sub(wait);
            assert!(early <= Some(Duration::from_nanos(1)) && early.is_some(), "{wait:?}");
        }
        self.assert_waits_cut(both, both);
    }

    fn assert_waits_cut(&self, tollgate: &[i64], guava: &[i64]) {
        let nearest: Vec<_> = self.subject_waits.iter().copied().map(nearest_micros).collect();
        assert_eq!(nearest, tollgate, "tollgate");
        assert_eq!(self.model_waits, guava, "Guava");
    }
}

fn nearest_micros(time: Duration) -> i64 {
    let nearest = time + Duration::from_nanos(500);
    i64::try_from(nearest.as_micros()).expect("a time of a few seconds")
}
