//! Law 4: all callers arrive at once, and many leave before their turn. From the arrival of the
//! last until its grant the queue is never empty, however long a thread is kept from running, so
//! every permit is granted.

use std::thread;
use std::time::Duration;

use futures::FutureExt;
use tollgate::{Gcra, Grant, Policy, Rate, RateLimiter, Reservation, SmoothBursty, TokenBucket};

use crate::random::Random;
use crate::support::{block_on, finishes};
use crate::tally::Tally;
use crate::watched::{Left, Watched, now};

const INTERVAL: Duration = Duration::from_micros(20);
const HOUR: Duration = Duration::from_secs(3600);
const MOST: u32 = 4;

/// The store holds only one request, and a late alarm loses nothing, however late it is.
pub(crate) fn all(span: Duration, chance: &mut Random) {
    let rate = Rate::every(INTERVAL);
    let bursty = SmoothBursty::new(rate).max_burst(Duration::ZERO).with_catch_up(HOUR);
    crowd("SmoothBursty", bursty, span / 3, chance.next());
    let bucket = TokenBucket::new(rate, MOST).with_catch_up(HOUR);
    crowd("TokenBucket", bucket, span / 3, chance.next());
    let gcra = Gcra::new(MOST - 1, 50, Duration::from_millis(1)).with_catch_up(HOUR);
    crowd("Gcra", gcra, span / 3, chance.next());
}

fn crowd<P: Policy<Cost = u32>>(name: &'static str, policy: P, span: Duration, seed: u64) {
    // About the number served in the time if a third leaves.
    let places = u64::try_from(span.as_micros() / INTERVAL.as_micros() / 2).expect("a few");
    let limiter = RateLimiter::new(policy);
    let line = limiter.clone();
    let (tally, from, last) = finishes(move || run_queue(&line, places.max(10), seed));
    tally.check(limiter.stats(), name);
    let came = i128::from(last - from) / i128::try_from(INTERVAL.as_nanos()).expect("short");
    // The first and the last request lie across the edges of the span.
    let charged = i128::from(tally.charged);
    let least = (came - 2 * i128::from(MOST)) * 99 / 100;
    assert!(charged >= least, "{name}: {charged} of {came} permits");
    let Tally { granted, left, unseen, .. } = tally;
    println!(
        "{name}, a queue that is never empty: {granted} granted, {left} left, {unseen} unseen;"
    );
    println!("    {charged} permits of {came} that came");
}

struct Member<P: Policy> {
    n: u32,
    /// Its earliest time of arrival.
    before: i64,
    place: Reservation<tollgate::RateLimiter<P>>,
}

/// Returns the counts, and the span in which all callers were queued.
fn run_queue<P: Policy<Cost = u32>>(
    limiter: &RateLimiter<P>,
    places: u64,
    seed: u64,
) -> (Tally, i64, i64) {
    let mut chance = Random(seed);
    let (mut stayers, mut leavers) = (Vec::new(), Vec::new());
    for index in 1..=places {
        let (n, before) = (chance.cost(MOST), now());
        let member = Member { n, before, place: limiter.reserve(n).expect("a place") };
        // The last one stays to the end.
        let leaves = index < places && chance.below(3) == 0;
        if leaves { &mut leavers } else { &mut stayers }.push(member);
    }
    let from = now();
    // Half of them from the end, so that they leave before their turn; the others around it.
    let late = leavers.split_off(leavers.len() / 2);
    let mut around = leavers.into_iter();
    let leaving = thread::spawn({
        let limiter = limiter.clone();
        move || leave(&limiter, late.into_iter().rev(), from)
    });
    let (mut tally, mut last) = (Tally::default(), i64::MIN);
    for Member { n, before, place } in stayers {
        let grant = block_on(place.wait()).expect("a grant");
        last = last.max(take(&mut tally, n, before, from, &grant));
        if let Some(member) = around.next() {
            tally += leave(limiter, [member], from);
        }
    }
    tally += leave(limiter, around, from);
    tally += leaving.join().expect("no panic");
    (tally, from, last)
}

/// Polls once and leaves; then tries, which must not overtake the queue.
fn leave<P: Policy<Cost = u32>>(
    limiter: &RateLimiter<P>,
    leavers: impl IntoIterator<Item = Member<P>>,
    from: i64,
) -> Tally {
    let mut tally = Tally::default();
    for Member { n, before, place } in leavers {
        let mut watched = Watched::new(place.wait());
        if let Some(result) = (&mut watched).now_or_never() {
            take(&mut tally, n, before, from, &result.expect("a grant"));
        } else if watched.leave() == Left::Decided {
            tally.unseen += 1;
            tally.charged += u64::from(n);
        } else {
            tally.left += 1;
        }
        match limiter.try_acquire(1) {
            Ok(_) => tally.granted += 1,
            Err(_) => tally.refused += 1,
        }
    }
    tally
}

/// Counts a grant, and returns its earliest due time.
fn take<P: Policy>(tally: &mut Tally, n: u32, before: i64, from: i64, grant: &Grant<'_, P>) -> i64 {
    let due = before + i64::try_from(grant.waited().as_nanos()).expect("short");
    tally.granted += 1;
    tally.waited += grant.waited();
    if due >= from {
        tally.charged += u64::from(n);
    }
    due
}
