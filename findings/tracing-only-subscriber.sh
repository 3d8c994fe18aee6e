#!/usr/bin/env bash
# tracing 0.1.44 with tracing-core 0.1.36: a scoped subscriber, as tests have one, and a thread beside it that has none.
# An event that the other thread meets first is off for good, also in the thread with the subscriber. It is so only while that
# subscriber is the only one in the process: with a second one, which hears nothing, the event arrives.
# Guess: a subscriber that is the default of its thread gets all events of that thread, whichever thread met them first.
# Seen: 0 of 1 events with one subscriber, and 1 of 1 while a second one lives.
. "$(dirname "$0")/common.bash"

cargo init --quiet --name seen --vcs none .
cargo add --quiet "tracing@=0.1.44" "tracing-core@=0.1.36"
cat > src/main.rs <<'END'
use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
use tracing::{Dispatch, Event, Metadata, Subscriber, span};

#[derive(Clone, Default)]
struct Counts(Arc<AtomicUsize>);

impl Subscriber for Counts {
    fn enabled(&self, _: &Metadata<'_>) -> bool { true }
    fn event(&self, _: &Event<'_>) { self.0.fetch_add(1, Ordering::SeqCst); }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id { span::Id::from_u64(1) }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The events that a thread's own subscriber gets, of one that another thread has met before.
fn seen(event: fn()) -> usize {
    let counts = Counts::default();
    tracing::subscriber::with_default(counts.clone(), || {
        std::thread::spawn(event).join().unwrap();
        event();
    });
    counts.0.load(Ordering::SeqCst)
}

fn main() {
    let alone = seen(|| tracing::info!("one"));
    let _second = Dispatch::new(Counts::default());
    println!("{alone} {}", seen(|| tracing::info!("another")));
}
END
expect "events with one subscriber, and with two" "$(cargo run --quiet)" "0 1"
