//! What threads do to each other's slots.

use super::slots::Slots;
use loom::sync::Arc;
use loom::thread;

fn no_thread(_: usize) -> Option<()> {
    None
}

fn put(slots: &Slots, thread: usize, permits: u32) {
    let mut held = slots.empty(thread).expect("a slot");
    held.permits += permits;
    slots.fill(held);
}

fn count(calls: impl IntoIterator<Item = bool>) -> u32 {
    calls.into_iter().map(u32::from).sum()
}

/// The thread of the slot takes from its hand, and takes a handful from its stock; another claims.
#[test]
fn cached_permits_are_taken_once() {
    loom::model(|| {
        let slots = Arc::new(Slots::new(1));
        put(&slots, 0, 3);
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || count([slots.claim(1, no_thread), slots.claim(1, no_thread)]))
        };
        let mut taken = count([slots.take(0, 1), slots.take(0, 1)]);
        put(&slots, 0, 0);
        taken += count([slots.take(0, 1)]);
        taken += other.join().expect("no panic");
        assert_eq!(taken + slots.held(), 3);
    });
}

/// The same, and two others claim.
#[test]
fn cached_permits_are_taken_once_among_three() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let slots = Arc::new(Slots::new(1));
        put(&slots, 0, 3);
        let claims = || {
            let slots = Arc::clone(&slots);
            thread::spawn(move || count([slots.claim(1, no_thread)]))
        };
        let others = [claims(), claims()];
        let mut taken = count([slots.take(0, 1)]);
        put(&slots, 0, 0);
        taken += count([slots.take(0, 1)]);
        taken += others.into_iter().map(|other| other.join().expect("no panic")).sum::<u32>();
        assert_eq!(taken + slots.held(), 3);
    });
}

/// A call that begins after the discard takes nothing from before it, and what is put back by a thread that had begun
/// before is void.
#[test]
fn cached_permits_are_void_once_they_are_discarded() {
    loom::model(|| {
        let slots = Arc::new(Slots::new(2));
        put(&slots, 0, 3);
        let owner = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                let taken = count([slots.take(0, 1)]);
                put(&slots, 0, 0);
                taken
            })
        };
        slots.discard();
        put(&slots, 1, 1);
        let claimed = count([slots.claim(2, no_thread)]);
        let taken = owner.join().expect("no panic");
        assert!(taken <= 1 && claimed == 0);
        assert_eq!((slots.held(), slots.take(0, 1), slots.claim(1, no_thread)), (1, false, false));
        assert!(slots.take(1, 1));
    });
}
