//! A changed file, read while callers wait.

use std::thread;
use std::time::Duration;

use tollgate::{AllOf, Limits, ManualClock, RateLimiters, Reservation};

fn limits(file: &str) -> Limits {
    toml::from_str(file).unwrap_or_else(|error| panic!("{error}"))
}

fn limiters(file: &str) -> (RateLimiters, ManualClock) {
    let clock = ManualClock::new();
    (RateLimiters::with_clock(limits(file), &clock), clock)
}

fn delay(place: &Reservation<tollgate::RateLimiter<AllOf>>) -> u128 {
    place.delay().as_millis()
}

#[test]
fn a_reload_retimes_those_who_wait() {
    let (limiters, clock) = limiters("default = '1/min'");
    let keyed = limiters.keyed();
    let places: Vec<_> = (0..4).map(|_| keyed.at("api").reserve(1).expect("a place")).collect();
    let delays = || places.iter().map(delay).collect::<Vec<_>>();
    assert_eq!(delays(), [0, 60_000, 120_000, 180_000]);
    clock.advance(Duration::from_secs(30));
    // The permit before keeps its price: half of a minute is left of it.
    limiters.reload(limits("default = '10/s'"));
    assert_eq!(delays(), [0, 30_000, 30_100, 30_200]);
    limiters.reload(limits("default = '1/min sliding window'"));
    clock.advance(Duration::from_secs(60));
    assert_eq!(keyed.at("api").queue_len(), 2);
}

/// The table of `docs/config.md`.
#[test]
fn how_soon_the_first_waiter_moves_depends_on_the_limit() {
    for (option, waits) in [("", 6000), (" burst 10", 500), (" sliding window", 0)] {
        let (limiters, _) = limiters(&format!("default = '10/min{option}'"));
        while limiters.keyed().at("search").try_acquire(1).is_ok() {}
        let first = limiters.keyed().at("search").reserve(1).expect("the queue is not full");
        limiters.reload(limits(&format!("default = '120/min{option}'")));
        assert_eq!(delay(&first), waits, "{option}");
    }
}

#[test]
fn a_file_that_is_read_again_gives_nothing_twice() {
    let file = "default = '1/min burst 5'\nlimits.own = '1/min burst 3, 10/h fixed window'";
    let (limiters, _) = limiters(file);
    let handles = ["any", "own"].map(|name| limiters.at(name));
    limiters.keyed().at("any").try_acquire(5).expect("a burst");
    limiters.keyed().at("own").try_acquire(3).expect("a burst");
    for _ in 0..3 {
        limiters.reload(limits(file));
        for (name, handle) in ["any", "own"].into_iter().zip(&handles) {
            assert_eq!(limiters.keyed().at(name).available(), 0, "{name}");
            // A handle from before is the same limiter.
            assert_eq!(handle.available(), 0, "{name}");
        }
    }
}

#[test]
fn a_broken_file_leaves_the_old_limits_in_force() {
    let (limiters, _) = limiters("default = '1/min'");
    let keyed = limiters.keyed();
    let places = [(); 2].map(|()| keyed.at("api").reserve(1).expect("a place"));
    let read = |file: &str| toml::from_str(file).map(|limits| limiters.reload(limits));
    for broken in
        ["", "default = '10/s brust 5'", "default = '0/s'", "default = '10/s'\nlimit = 5", "["]
    {
        assert!(read(broken).is_err(), "{broken}");
        assert_eq!(delay(&places[1]), 60_000);
        assert_eq!(*limiters.limits(), limits("default = '1/min'"));
    }
}

#[test]
fn a_name_that_is_added_keeps_what_it_took_of_the_default() {
    let (limiters, clock) = limiters("default = '1/min burst 5'");
    let before = limiters.at("api");
    let keyed = limiters.keyed();
    keyed.at("api").try_acquire(4).expect("a burst");
    limiters.reload(limits("default = '1/min burst 5'\nlimits.api = '1/s burst 10'"));
    assert_eq!(keyed.at("api").available(), 1);
    assert_eq!((keyed.at("other").available(), before.quota().limit), (5, 10));
    clock.advance(Duration::from_secs(3));
    assert_eq!(keyed.at("api").available(), 4);
}

#[test]
fn a_name_that_is_removed_gets_the_default() {
    let (limiters, clock) = limiters("default = '1/s burst 2'\nlimits.api = '10/s burst 20'");
    let keyed = limiters.keyed();
    keyed.at("api").try_acquire(20).expect("a burst");
    let waiting = keyed.at("api").reserve(2).expect("a place");
    assert_eq!(delay(&waiting), 200);
    limiters.reload(limits("default = '1/s burst 2'"));
    assert_eq!(delay(&waiting), 2000);
    clock.advance(Duration::from_secs(60));
    assert_eq!((delay(&waiting), keyed.at("api").queue_len()), (0, 0));
    assert_eq!(keyed.at("api").quota().limit, 2);
}

#[test]
fn a_name_that_is_removed_without_a_default_is_not_limited() {
    let (limiters, clock) = limiters("limits = { api = '1/s burst 2', other = '1/s' }");
    let before = limiters.at("api");
    let keyed = limiters.keyed();
    keyed.at("api").try_acquire(2).expect("a burst");
    let waiting = keyed.at("api").reserve(2).expect("a place");
    assert_eq!(delay(&waiting), 2000);
    for _ in 0..2 {
        limiters.reload(limits("limits.other = '1/s'"));
        assert_eq!((delay(&waiting), before.queue_len()), (0, 0));
        keyed.at("api").try_acquire(100).expect("no limit");
        keyed.at("never listed").try_acquire(100).expect("no limit");
    }
    // Listed again, it is as new.
    limiters.reload(limits("limits = { api = '2/s burst 2', other = '1/s' }"));
    clock.advance(Duration::from_secs(1));
    keyed.at("api").try_acquire(2).expect("a burst");
    keyed.at("api").try_acquire(1).expect_err("used up");
}

#[test]
fn those_who_wait_by_a_default_that_is_removed_go_at_once() {
    let (limiters, _) = limiters("default = '1/s'");
    let keyed = limiters.keyed();
    let places = [(); 3].map(|()| keyed.at("api").reserve(1).expect("a place"));
    assert_eq!(delay(&places[2]), 2000);
    limiters.reload(limits("limits.other = '1/s'"));
    assert_eq!((delay(&places[2]), keyed.at("api").queue_len()), (0, 0));
}

#[test]
fn the_bounds_of_the_builder_hold_for_each_name_also_after_a_reload() {
    let file = "default = '1/s'\nlimits.own = '1/s, 9 in flight'";
    let clock = ManualClock::new();
    let limiters = RateLimiters::with_options(limits(file), |builder| {
        builder.clock(&clock).max_waiters(2).max_queued_permits(5)
    });
    let keyed = limiters.keyed();
    let waiters = |name: &str, n: u32| {
        let places: Vec<_> = (0..20).map_while(|_| keyed.at(name).reserve(n).ok()).collect();
        places.len() - 1 // the first does not wait
    };
    let all = || [waiters("any", 1), waiters("own", 1), waiters("permits", 3)];
    assert_eq!(all(), [2, 2, 1]);
    // With callers at each name, whose places are the same lines afterwards.
    let kept: Vec<_> = ["any", "own", "permits"].map(|name| keyed.at(name).reserve(1)).into();
    limiters.reload(limits("default = '2/s'"));
    drop(kept);
    clock.advance(Duration::from_secs(60));
    assert_eq!(all(), [2, 2, 1]);
}

#[test]
fn each_name_that_a_pattern_matches_is_a_limiter_which_keeps_its_history() {
    let star = "per = 'host'\ndefault = '1/s'\nlimits.'*.search' = '1/s burst 3'";
    let (limiters, _) = limiters(star);
    let keyed = limiters.keyed();
    keyed.at("a.search").try_acquire(3).expect("a burst");
    assert_eq!(["a.search", "b.search"].map(|name| keyed.at(name).available()), [0, 3]);
    let waiting = keyed.at("a.search").reserve(1).expect("a place");
    // In full.
    limiters.reload(limits(&format!("{star}\nlimits.'a.search' = '2/s burst 5'")));
    assert_eq!((delay(&waiting), keyed.at("a.search").quota().limit), (500, 5));
    limiters.reload(limits("per = 'host'\nlimits.'a.search' = '4/s burst 4'"));
    assert_eq!((delay(&waiting), keyed.at("a.search").quota().limit), (250, 4));
    limiters.at("b.search").try_acquire(1000).expect("no limit");
    // Of none any more: those who wait go.
    limiters.reload(limits("per = 'host'\nlimits.other = '1/s'"));
    assert_eq!((delay(&waiting), keyed.at("a.search").queue_len()), (0, 0));
}

#[test]
fn an_unlimited_name_waits_for_nothing_but_a_pause() {
    let (limiters, clock) =
        limiters("per = 'host'\ndefault = '1/min'\nlimits.'*.own' = 'unlimited'");
    let keyed = limiters.keyed();
    for name in ["a.own", "b.own"] {
        for _ in 0..3 {
            keyed.at(name).try_acquire(u32::MAX).expect("no limit");
        }
    }
    keyed.at("other").try_acquire(1).expect("the first");
    keyed.at("other").try_acquire(1).expect_err("the default");
    keyed.at("a.own").pause_for(Duration::from_secs(7)).expect("a key");
    let waiting = keyed.at("a.own").reserve(1).expect("a place");
    assert_eq!(delay(&waiting), 7_000);
    // Limited from now on: as new, for those who wait as well.
    limiters.reload(limits("per = 'host'\ndefault = '1/min'"));
    clock.advance(Duration::from_secs(7));
    assert_eq!((delay(&waiting), keyed.at("a.own").available()), (0, 0));
}

#[test]
fn the_initial_tokens_of_a_file_are_those_of_a_name_that_comes() {
    let (limiters, clock) = limiters("default = '1/s burst 5 initial 2'");
    assert_eq!(limiters.keyed().at("api").available(), 2);
    limiters.keyed().at("api").try_acquire(2).expect("initial tokens");
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiters.keyed().at("api").available(), 1);
}

/// After the last reload all names have the last limits, whichever threads reloaded before.
#[test]
fn reloads_of_several_threads_end_with_one_file_for_all_names() {
    let (limiters, _) = limiters("default = '1/s burst 1'");
    let names: Vec<_> = (0..300).map(|name| name.to_string()).collect();
    for name in &names {
        limiters.keyed().at(name).try_acquire(1).expect("the first");
    }
    thread::scope(|scope| {
        for burst in 2..6 {
            let limiters = &limiters;
            scope.spawn(move || {
                for _ in 0..20 {
                    limiters
                        .reload(Limits::per_name(&*format!("1/s burst {burst}")).expect("a limit"));
                }
            });
        }
    });
    let limits = limiters.limits();
    let limit = limits.get("0");
    for name in &names {
        let size = limiters.keyed().at(name).quota().limit;
        assert_eq!(*limit.to_string(), format!("1/s burst {size}"), "{name}");
    }
}
