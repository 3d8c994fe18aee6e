//! The system's clock. The thread that ends its waits is in [`timer_thread`](super::timer_thread).
//!
//! The time is the operating system's monotonic clock, read by way of the processor's counter, which takes a third of the time.
//! [`quanta`] calibrates that counter once, in a fraction of a second; on a busy machine it was once off by 0.08 % for the life
//! of the process, and a limiter with it. So the counter is trusted for a millisecond only, and then set by the operating
//! system's clock again. It is made to run a little slow, so that each setting moves the time forward: this clock is late by
//! some microseconds (by more for a millisecond, where a setting was interrupted), never early, and does not go back. From one
//! thread to another it can seem to, by nanoseconds: a processor may read its counter before it has finished taking the lock in
//! front of it.

use std::sync::OnceLock;
use std::time::Instant;

use crate::sync::real::Mutex;

use super::timer_thread::TimerThread;
use crate::sync::{AtomicU64, Ordering, OwnLine};
use crate::units::{Nanos, saturating_nanos};

/// How long the counter is trusted, in nanoseconds.
const TRUST: u64 = 1_000_000;

/// The counter runs slow by 1 in 2^9, 0.2 %, more than a calibration was ever seen to be off. So it loses
/// two microseconds until it is set again.
const SLOW: u32 = 9;

#[derive(Debug)]
pub(crate) struct System {
    counter: quanta::Clock,
    /// Nanoseconds per tick of the counter, times 2^32.
    scale: u64,
    origin: Instant,
    set: OwnLine<Set>,
    setting: Mutex<()>,
    pub(super) thread: TimerThread,
}

/// When the counter was last set, by itself, and by how much it was behind then.
#[derive(Debug)]
struct Set {
    at: AtomicU64,
    /// A signed number.
    behind: AtomicU64,
}

impl Set {
    /// The counter is not trusted before it is set for the first time.
    fn never() -> Self {
        let behind = i64::MIN.cast_unsigned();
        Self { at: AtomicU64::new(u64::MAX / 2), behind: AtomicU64::new(behind) }
    }

    /// By how much the counter is behind, if it was set less than [`TRUST`] before `count`.
    ///
    /// Never an older difference than belongs to the time that was read: with a new time, which is trusted, it
    /// would be wrong by all that the counter lost meanwhile, seconds after an hour without calls. A newer
    /// difference only goes with a count from before that setting, and is wrong by another millisecond's error.
    #[inline(always)]
    fn read(&self, count: u64) -> Option<i64> {
        // A count from before the last setting wraps, and is not trusted either.
        let is_trusted = count.wrapping_sub(self.at.load(Ordering::Acquire)) < TRUST;
        is_trusted.then(|| self.last())
    }

    fn write(&self, at: u64, behind: i64) {
        self.behind.store(behind.cast_unsigned(), Ordering::Relaxed);
        self.at.store(at, Ordering::Release);
    }

    #[inline(always)]
    fn last(&self) -> i64 {
        self.behind.load(Ordering::Relaxed).cast_signed()
    }
}

static SYSTEM: OnceLock<System> = OnceLock::new();

impl System {
    pub(super) fn get() -> &'static Self {
        SYSTEM.get_or_init(Self::new)
    }

    #[inline(never)]
    fn new() -> Self {
        let counter = quanta::Clock::new();
        let scale = scale(counter.delta_as_nanos(0, TICKS));
        Self {
            counter,
            scale,
            origin: Instant::now(),
            set: OwnLine(Set::never()),
            setting: Mutex::default(),
            thread: TimerThread::new(|| Self::get().now()),
        }
    }

    // As `Line::decide`.
    #[inline(always)]
    pub(super) fn now(&self) -> Nanos {
        let count = nanos(self.counter.raw(), self.scale);
        match self.set.0.read(count) {
            Some(behind) => Nanos::new(count.wrapping_add_signed(behind)),
            None => self.set(),
        }
    }

    /// Sets the counter by the operating system's clock. One thread does it at a time: of two settings the later one must stay.
    #[cold]
    #[inline(never)]
    fn set(&self) -> Nanos {
        let _one_at_a_time = self.setting.lock();
        let before = nanos(self.counter.raw(), self.scale);
        let now = saturating_nanos(self.origin.elapsed());
        let after = nanos(self.counter.raw(), self.scale);
        // The clock was read between the two counts, so the difference lies between these two. The last
        // setting stays if it does, too: after a time has been read, no earlier one may be.
        let (least, most) = (now.wrapping_sub(after), now.wrapping_sub(before));
        let last = self.set.0.last();
        let stays = (least.cast_signed()..=most.cast_signed()).contains(&last);
        let behind = if stays { last } else { least.cast_signed() };
        self.set.0.write(after, behind);
        Nanos::new(after.wrapping_add_signed(behind))
    }
}

/// Enough ticks for an exact scale, and few enough for any counter.
const TICKS: u64 = 1 << 40;

/// The scale of a counter, `TICKS` of which take this many nanoseconds.
fn scale(nanos: u64) -> u64 {
    let exact = nanos >> 8;
    exact - (exact >> SLOW)
}

/// A counter's value, in nanoseconds by its scale.
#[allow(clippy::cast_possible_truncation)] // it wraps after centuries
#[inline(always)]
fn nanos(ticks: u64, scale: u64) -> u64 {
    ((u128::from(ticks) * u128::from(scale)) >> 32) as u64
}

#[cfg(all(test, tollgate_loom))]
mod loom {
    use std::sync::Arc;

    use ::loom::thread;

    use super::*;

    /// The counter runs at half speed here, and is set twice.
    #[test]
    fn a_time_is_never_read_with_the_difference_of_an_older_one() {
        ::loom::model(|| {
            let set = Arc::new(Set::never());
            let writer = thread::spawn({
                let set = Arc::clone(&set);
                move || [TRUST, 3 * TRUST].map(|at| set.write(at, at.cast_signed()))
            });
            // A count that goes with the first setting, and one that goes with the second.
            for at in [TRUST, 3 * TRUST] {
                let behind = set.read(at + 1);
                assert!(behind.is_none_or(|behind| behind >= at.cast_signed()), "{behind:?}");
            }
            writer.join().expect("no panic");
        });
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn counters_of_any_tick_are_scaled() {
        // 5 GHz, 3 GHz, a nanosecond, 2 ns, 24 MHz, 1 MHz.
        for hertz in
            [5_000_000_000u64, 3_000_000_000, 1_000_000_000, 500_000_000, 24_000_000, 1_000_000]
        {
            let exact = |ticks: u64| u128::from(ticks) * 1_000_000_000 / u128::from(hertz);
            let scale = scale(u64::try_from(exact(TICKS)).expect("fits"));
            // Counts since the machine was started, up to a century.
            for start in [0, hertz, 86_400 * 365 * 100 * hertz] {
                for ticks in [0, 1, hertz / 1000, hertz] {
                    let ours = nanos(start + ticks, scale).wrapping_sub(nanos(start, scale));
                    let exact = u64::try_from(exact(ticks)).expect("fits");
                    let slow = exact - (exact >> SLOW);
                    assert!(ours <= exact + 1, "{hertz}: {ours} {exact}");
                    assert!(ours.abs_diff(slow) <= 1 + (exact >> 20), "{hertz}: {ours} {slow}");
                }
            }
        }
    }

    /// Not at all for one thread; from one thread to another by what processors reorder.
    #[test]
    fn the_time_does_not_go_back_and_is_not_early() {
        const REORDERED: Duration = Duration::from_micros(1);
        let system = System::get();
        let last = Mutex::new(system.now());
        // Through a hundred settings at least.
        let end = last.lock().saturating_add(100 * Duration::from_nanos(TRUST));
        let read = || {
            let mut own_last = system.now();
            while own_last < end {
                let mut last = last.lock();
                let now = system.now();
                let latest = saturating_nanos(system.origin.elapsed());
                assert!(now >= own_last, "{now:?} after {own_last:?}");
                assert!(now.saturating_add(REORDERED) >= *last, "{now:?} after {last:?}");
                assert!(now.get() <= latest, "{now:?} is early, it is {latest}");
                (*last, own_last) = (now, now);
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(read)));
    }

    /// Settings of many threads that meet: an earlier one, finished late, must not be taken.
    #[test]
    fn settings_that_meet_do_not_turn_the_time_back() {
        let system = System::get();
        let end = system.now().saturating_add(Duration::from_millis(100));
        let set = || {
            let mut last = system.now();
            while last < end {
                for now in [system.set(), system.now()] {
                    assert!(now >= last, "{now:?} after {last:?}");
                    last = now;
                }
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(set)));
    }
}
