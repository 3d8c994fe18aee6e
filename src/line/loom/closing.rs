//! Callers, the alarm and the end of a line.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};
use std::time::Duration;

use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::super::testing::{self, ask, sound, stand_at};
use super::super::{Caller, Line};
use super::{Call, LATER, NOW, check};
use crate::error::Error;
use crate::policy::Policy;
use crate::policy::gcra::Gcra;
use crate::policy::in_flight::InFlight;
use crate::policy::smooth_bursty::SmoothBursty;
use crate::policy::smooth_warming_up::SmoothWarmingUp;
use crate::policy::token_bucket::TokenBucket;
use crate::wait_queue::{End, WaiterId};

/// By the word, by the mutex beside the word, and by the mutex alone.
#[test]
fn a_closed_line_grants_nothing_more() {
    use Call::{Close, Try};
    check::<SmoothBursty>(3, &[&[Try(1), Try(1)], &[Close, Try(1)]]);
    check::<TokenBucket>(2, &[&[Try(1), Try(1)], &[Close, Try(1)]]);
    check::<Gcra>(2, &[&[Try(900_000), Try(1)], &[Close, Try(900_000)]]);
    check::<SmoothWarmingUp>(3, &[&[Try(1), Try(1)], &[Close, Try(1)]]);
}

#[test]
#[ignore = "takes minutes: run it after a change of the word"]
fn a_closed_line_grants_nothing_more_among_three() {
    use Call::{Close, Try};
    check::<SmoothBursty>(2, &[&[Try(1)], &[Try(2)], &[Close]]);
    check::<SmoothWarmingUp>(2, &[&[Try(1)], &[Try(2)], &[Close]]);
}

/// A line, and a caller that waits there.
type Begun<P> = (Arc<Line<P>>, Option<WaiterId>);

/// One permit is granted, and a caller waits for the next one.
fn with_a_waiter() -> Begun<SmoothBursty> {
    let line = super::line::<SmoothBursty>(NOW);
    assert!(ask(&line, NOW, 5, None).is_ok());
    match ask(&line, NOW, 1, None) {
        Ok(Caller::Waiting(key)) => (line, Some(key)),
        _ => panic!("it has to wait"),
    }
}

/// Whether a wait has ended with a grant.
fn is_granted(line: &Arc<Line<SmoothBursty>>, key: WaiterId) -> bool {
    stand_at(LATER);
    match line.with_lock(|inner, _| inner.poll(key, Waker::noop())) {
        Ok(Ok(_)) => true,
        Ok(Err(Error::Closed)) => false,
        _ => panic!("it still waits, or has another end"),
    }
}

/// A caller that waits, one that comes, the alarm, and the end.
#[test]
fn a_line_that_closes_ends_each_wait_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (line, key) = with_a_waiter();
        let comes = {
            let line = Arc::clone(&line);
            thread::spawn(move || match ask(&line, NOW, 1, None) {
                Ok(Caller::Waiting(key)) => Some(key),
                // After the alarm: for the line it is later then.
                Ok(_) | Err(Error::Closed) => None,
                Err(error) => panic!("{error}"),
            })
        };
        let closes = {
            let line = Arc::clone(&line);
            thread::spawn(move || {
                stand_at(NOW);
                assert!(line.end(End::Close));
            })
        };
        stand_at(LATER);
        sound(&line);
        let came = comes.join().expect("no panic");
        closes.join().expect("no panic");
        let waited = [key, came].into_iter().flatten();
        let granted = waited.filter(|&key| is_granted(&line, key)).count();
        assert!(line.stats().granted > granted as u64);
        assert_eq!(line.look(|inner, _| inner.queue_len()), 0);
        assert!(matches!(ask(&line, LATER, 1, None), Err(Error::Closed)));
    });
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A line is drained by what `ends` does, while another thread asks to be woken.
fn who_drains_is_woken<P: Policy<Cost = u32>>(
    begin: fn() -> Begun<P>,
    ends: fn(&Arc<Line<P>>, Option<WaiterId>),
) {
    loom::model(move || {
        let (line, key) = begin();
        assert!(line.end(End::Serve));
        let other = thread::spawn({
            let line = Arc::clone(&line);
            move || ends(&line, key)
        });
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        stand_at(NOW);
        let was_drained = line.end(End::IsDrained(&waker));
        other.join().expect("no panic");
        assert!(was_drained || woken.0.load(Ordering::SeqCst) > 0, "it is not woken");
        assert!(line.end(End::IsDrained(Waker::noop())));
    });
}

#[test]
fn a_drain_ends_when_the_last_caller_leaves_or_is_granted() {
    who_drains_is_woken(with_a_waiter, |line, key| {
        stand_at(NOW);
        line.leave(key.expect("it waits"));
    });
    who_drains_is_woken(with_a_waiter, |line, _| {
        stand_at(LATER);
        sound(&line);
    });
}

#[test]
fn a_drain_ends_when_the_last_place_is_back() {
    fn begin() -> Begun<InFlight> {
        let line = testing::line(InFlight::new(1), NOW);
        assert!(ask(&line, NOW, 1, Some(Duration::ZERO)).is_ok());
        (line, None)
    }
    who_drains_is_woken(begin, |line, _| {
        stand_at(NOW);
        line.release(1);
    });
}
