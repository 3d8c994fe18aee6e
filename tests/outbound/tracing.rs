//! Events as a subscriber of `tracing` sees them.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::{KeyedRateLimiter, ManualClock, Rate, RateLimiter, SmoothBursty};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

/// Keeps each event as a line of text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("to a string");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tollgate")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().expect("no panic").push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn long_waits_pauses_and_changes_are_events() {
    let log = Log::default();
    // With one subscriber in the process, tracing asks that of the thread that meets an event first. In another test it has
    // none, and the event would be off for good.
    let _second = tracing::Dispatch::new(Log::default());
    tracing::subscriber::with_default(log.clone(), || {
        let policy = SmoothBursty::new(Rate::per_second(2.0));
        let clock = ManualClock::auto_advance();
        let limiter = RateLimiter::builder(policy.clone()).clock(&clock).name("search").build();
        for n in [1, 2, 1] {
            limiter.blocking_acquire(n).expect("it waits for 0, 0.5 and 1 s");
        }
        limiter.pause_for(Duration::from_millis(1_500));
        limiter.set_rate(Rate::per_second(4.0));
        let keyed = KeyedRateLimiter::builder(policy.clone()).clock(&clock).build();
        keyed.at("alice").pause_for(Duration::from_secs(2)).expect("there is room");
        keyed.set_policy(policy);
        let _: KeyedRateLimiter<String, _> = keyed;
    });
    let expected = [
        r#"INFO message=waited for 1s limiter="search""#,
        r#"INFO message=paused for 1.5s limiter="search""#,
        r#"INFO message=the rate is now 4/s limiter="search""#,
        "INFO message=paused for 2s",
        "INFO message=the policy was changed",
    ];
    assert_eq!(*log.0.lock().expect("no panic"), expected);
}
