//! Another maximum while some are out and some wait.

use tollgate::{Error, InFlight};

use super::at_most;
use crate::support::{is_waiting, outcome, secs};

#[test]
fn a_maximum_below_the_number_in_flight_grants_nothing_until_enough_are_given_back() {
    let (_, limiter) = at_most(5);
    let mut out: Vec<_> = (0..5).map(|_| limiter.try_acquire(1).expect("free")).collect();
    limiter.set_policy(InFlight::new(2));
    let mut waiting = limiter.acquire(1);
    for left in [4, 3, 2] {
        assert!(is_waiting(&mut waiting));
        drop(out.pop());
        assert_eq!((limiter.available(), out.len()), (0, left));
    }
    assert!(is_waiting(&mut waiting));
    drop(out.pop());
    let place = outcome(&mut waiting).expect("one of two is out");
    assert_eq!(limiter.available(), 0);
    drop((place, out));
    let quota = limiter.quota();
    assert_eq!((quota.limit, quota.remaining), (2, 2));
}

#[test]
fn waiters_for_more_than_the_new_maximum_get_an_error_and_those_behind_move_up() {
    let (_, limiter) = at_most(5);
    let _place = limiter.try_acquire(2).expect("free");
    let mut big = limiter.acquire(4);
    let mut small = limiter.acquire(1);
    let mut behind = limiter.try_acquire_timeout(4, secs(1));
    assert!(is_waiting(&mut big) && is_waiting(&mut small) && is_waiting(&mut behind));
    limiter.set_policy(InFlight::new(3));
    for error in [outcome(&mut big), outcome(&mut behind)].map(|result| result.err()) {
        let Some(Error::ExceedsCapacity(exceeds)) = error else { panic!("{error:?}") };
        assert_eq!((exceeds.max, exceeds.part().map(tollgate::Part::index)), (3, None));
    }
    assert!(outcome(&mut small).is_ok());
    assert_eq!(limiter.queue_len(), 0);
}

/// Waiters in front of the impossible request keep their places until it gets its error.
#[test]
fn an_impossible_request_in_the_queue_gets_its_error_at_the_head() {
    let (_, limiter) = at_most(5);
    let place = limiter.try_acquire(5).expect("free");
    let mut first = limiter.acquire(2);
    let mut big = limiter.acquire(4);
    let mut last = limiter.acquire(1);
    assert!(is_waiting(&mut first) && is_waiting(&mut big) && is_waiting(&mut last));
    limiter.set_policy(InFlight::new(3));
    assert!(is_waiting(&mut first));
    drop(place);
    let _first = outcome(&mut first).expect("two of three");
    assert!(matches!(outcome(&mut big), Err(Error::ExceedsCapacity(_))));
    let _last = outcome(&mut last).expect("the third");
    assert_eq!((limiter.queue_len(), limiter.available()), (0, 0));
}

#[test]
fn a_higher_maximum_grants_the_waiters_that_fit() {
    let (_, limiter) = at_most(1);
    let _place = limiter.try_acquire(1).expect("free");
    let mut line = [limiter.acquire(1), limiter.acquire(1), limiter.acquire(1)];
    assert!(line.iter_mut().all(is_waiting));
    limiter.set_policy(InFlight::new(3));
    assert_eq!(limiter.queue_len(), 1);
    let _two = [outcome(&mut line[0]).expect("room"), outcome(&mut line[1]).expect("room")];
    assert!(is_waiting(&mut line[2]));
}

#[test]
fn a_maximum_of_zero_grants_nothing_until_it_is_raised() {
    let (_, limiter) = at_most(1);
    let place = limiter.try_acquire(1).expect("free");
    limiter.set_policy(InFlight::new(0));
    assert!(matches!(limiter.try_acquire(1), Err(Error::ExceedsCapacity(_))));
    drop(place);
    assert_eq!(limiter.available(), 0);
    limiter.set_policy(InFlight::new(1));
    assert!(limiter.try_acquire(1).is_ok());
}

/// Permits settled upwards count, even above the maximum, until they are given back.
#[test]
fn more_than_the_maximum_can_be_out_by_settling() {
    let (_, limiter) = at_most(3);
    let mut grant = limiter.try_acquire(1).expect("free");
    grant.settle(u32::MAX).expect("a count");
    grant.settle(5).expect("a count");
    let mut waiting = limiter.acquire(1);
    assert!(is_waiting(&mut waiting));
    grant.settle(3).expect("a count");
    assert!(is_waiting(&mut waiting));
    grant.settle(2).expect("a count");
    let place = outcome(&mut waiting).expect("the third");
    drop((grant, place));
    assert_eq!(limiter.available(), 3);
}
