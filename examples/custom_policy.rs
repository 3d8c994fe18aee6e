//! A custom policy: a daily budget that is spread over the rest of the day.
//!
//! A number of calls a day, until midnight. Each call takes its share of the time left: 24 calls
//! are one an hour, and without a call before noon, one each half hour from then on. No policy of
//! the crate does that: a rate forgets unused permits, and a window grants all of them at once.
//!
//! ```text
//! cargo run --example custom_policy    # takes no time: the clock is moved by the waits
//! ```

use std::time::Duration;

use tollgate::{
    ExceedsCapacity, InFlight, KeyedRateLimiter, ManualClock, Nanos, Policy, RateLimiter, Ready,
};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The parameters: `permits` a day. Plain data, without a clock or a lock.
#[derive(Clone, Debug)]
struct DailyBudget {
    permits: u32,
    /// How long before the clock's origin a day began: `Clock::since_epoch()` for days in UTC.
    epoch: Duration,
}

/// The history: the day of the last charge.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Day {
    midnight: Nanos,
    spent: u64,
    /// When the last permits were taken, and how many.
    last: Nanos,
    taken: u32,
}

impl DailyBudget {
    fn left(&self, day: &Day) -> u64 {
        u64::from(self.permits).saturating_sub(day.spent)
    }

    /// The end of the last permits' share of the rest of the day.
    fn next(&self, day: &Day) -> Nanos {
        let rest = day.midnight.since(day.last).as_nanos();
        let taken = u128::from(day.taken);
        let share = (rest * taken).div_ceil((u128::from(self.left(day)) + taken).max(1));
        day.last.saturating_add(Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX)))
    }
}

impl Policy for DailyBudget {
    type Cost = u32;
    type State = Day;
    /// Before and after the charge, so that a refund knows whether there was a charge since.
    type Receipt = (Day, Day);

    fn start(&self, now: Nanos) -> Day {
        let into_day = (u128::from(now.get()) + self.epoch.as_nanos()) % DAY.as_nanos();
        let into_day = Duration::from_nanos(u64::try_from(into_day).unwrap_or_default());
        Day { midnight: now.saturating_add(DAY - into_day), spent: 0, last: now, taken: 0 }
    }

    /// Time alone must never take readiness away: a request that is ready stays ready at all later
    /// times. Here both times stay fixed until the next charge, and at midnight the whole budget is
    /// available.
    fn ready_at(&self, day: &Day, _: Nanos, n: u32) -> Result<Ready, ExceedsCapacity> {
        if n > self.permits {
            // Waiting would not help.
            return Err(ExceedsCapacity::new(n, u64::from(self.permits)));
        }
        let fits = u64::from(n) <= self.left(day);
        Ok(Ready::At(if fits { self.next(day) } else { day.midnight }))
    }

    /// Charges whether ready or not: `settle` may overdraw. A clock that has gone back must not
    /// gain anything, so this never counts from before `next`.
    fn charge(&self, day: &mut Day, at: Nanos, n: u32) -> (Day, Day) {
        let before = *day;
        if at >= day.midnight {
            *day = self.start(at);
        }
        let last = at.max(self.next(day));
        *day = Day { spent: day.spent.saturating_add(n.into()), last, taken: n, ..*day };
        (before, *day)
    }

    /// Exact if there was no charge since. Otherwise the budget comes back and the time does not:
    /// less than was taken, which is always safe. (Without this method nothing would come back.)
    fn refund(
        &self,
        day: &mut Day,
        _: Nanos,
        part: u32,
        (before, after): (Day, Day),
    ) -> (Day, Day) {
        if *day == after && part == after.taken {
            *day = before;
        } else if day.midnight == after.midnight {
            day.spent = day.spent.saturating_sub(part.into());
        }
        (before, after)
    }

    /// New parameters, old history: today's permits count.
    fn migrate(&self, _: &Self, _: &mut Day, _: Nanos) {}

    fn available(&self, day: &Day, now: Nanos) -> u32 {
        match now {
            now if now >= day.midnight => self.permits,
            now if now >= self.next(day) => u32::try_from(self.left(day)).unwrap_or(u32::MAX),
            _ => 0,
        }
    }

    /// From this time on the state answers as a new one does, so that a key can be forgotten.
    fn idle_at(&self, day: &Day) -> Option<Nanos> {
        Some(day.midnight)
    }
}

/// The wait that a refused call would have had.
fn retry_after(limiter: &RateLimiter<DailyBudget>) -> Option<Duration> {
    limiter.try_acquire(1).err()?.retry_after()
}

fn main() -> Result<(), tollgate::Error> {
    let clock = ManualClock::auto_advance();
    let say = |what: &str| {
        let minutes = clock.elapsed().as_secs() / 60;
        println!("day {} {:02}:{:02}  {what}", minutes / 1440, minutes / 60 % 24, minutes % 60);
    };
    let budget = DailyBudget { permits: 24, epoch: Duration::ZERO };
    let limiter = RateLimiter::with_clock(budget.clone(), &clock);

    limiter.try_acquire(1)?;
    say("try_acquire: granted");
    assert_eq!(retry_after(&limiter), Some(HOUR));
    say("try_acquire: refused, retry after an hour");
    assert!(limiter.try_acquire_timeout(1, HOUR / 2).blocking_wait().is_err());
    say("try_acquire_timeout of half an hour: refused at once");

    // The async `acquire` is the same.
    let mut grant = limiter.blocking_acquire(1)?;
    assert_eq!((grant.waited(), clock.elapsed()), (HOUR, HOUR));
    say("acquire: an hour later");
    grant.settle(3)?;
    let place = limiter.reserve(1)?;
    assert_eq!(place.delay(), 3 * HOUR);
    say("settle: it was three calls in truth, so the next one is due in three hours");
    drop(place);

    limiter.pause_for(11 * HOUR);
    let grant = limiter.blocking_acquire(1)?;
    assert_eq!(clock.elapsed(), 12 * HOUR);
    say("pause_for, eleven hours: nothing before noon");
    grant.refund();
    assert_eq!(limiter.quota().remaining, 20);
    say("refund: as if it had not been, 20 are left for today");
    limiter.try_acquire(1)?;
    assert_eq!(retry_after(&limiter), Some(12 * HOUR / 20));
    say("try_acquire: granted, and then one each 36 minutes");
    limiter.set_policy(DailyBudget { permits: 52, ..budget.clone() });
    assert_eq!(retry_after(&limiter), Some(12 * HOUR / 48));
    say("set_policy, 52 a day: one each quarter of an hour");

    clock.set(DAY + 18 * HOUR);
    limiter.set_policy(budget.clone());
    for _ in 0..24 {
        limiter.blocking_acquire(1)?;
    }
    assert_eq!(clock.elapsed(), DAY + 18 * HOUR + 23 * HOUR / 4);
    say("without a call before 18:00, 24 calls were granted, one each quarter of an hour");
    limiter.blocking_acquire(1)?;
    assert_eq!(clock.elapsed(), 2 * DAY);
    say("acquire: the next one had to wait for midnight");

    // Together with other policies: a cost for each.
    let limiter = RateLimiter::with_clock((budget.clone(), InFlight::new(1)), &clock);
    let call = limiter.try_acquire((1, 1))?;
    clock.advance(HOUR);
    assert_eq!(
        limiter.try_acquire((1, 1)).err().and_then(|error| error.part().map(tollgate::Part::index)),
        Some(1)
    );
    say("with InFlight: an hour later, but the first call still runs");
    drop(call);
    limiter.try_acquire((1, 1))?;
    say("with InFlight: it has ended, granted");

    // And one for each key.
    let limiter = KeyedRateLimiter::<String, _>::with_clock(budget, &clock);
    limiter.at("alice").try_acquire(1)?;
    assert!(limiter.at("alice").try_acquire(1).is_err());
    limiter.at("bob").try_acquire(1)?;
    say("with keys: alice has had hers, bob has not");
    Ok(())
}
