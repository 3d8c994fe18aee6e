//! A changed file, read while callers wait.

use std::thread;
use std::time::Duration;

use tollgate::{
    AllOf, AtKey, Error, Limiter as _, Limits, ManualClock, Name, Per, RateLimiters, Reservation,
};

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
    let places: Vec<_> = (0..4).map(|_| keyed.reserve("api", 1).expect("a place")).collect();
    let delays = || places.iter().map(delay).collect::<Vec<_>>();
    assert_eq!(delays(), [0, 60_000, 120_000, 180_000]);
    clock.advance(Duration::from_secs(30));
    // The permit before keeps its price: half of a minute is left of it.
    limiters.reload(limits("default = '10/s'"));
    assert_eq!(delays(), [0, 30_000, 30_100, 30_200]);
    limiters.reload(limits("default = '1/min sliding window'"));
    clock.advance(Duration::from_secs(60));
    assert_eq!(keyed.queue_len("api"), 2);
}

#[test]
fn a_file_that_is_read_again_gives_nothing_twice() {
    let file = "default = '1/min burst 5'\nlimits.own = '1/min burst 3, 10/h fixed window'";
    let (limiters, _) = limiters(file);
    let handles = ["any", "own"].map(|name| limiters.at(name).expect("a limit"));
    limiters.keyed().try_acquire("any", 5).expect("a burst");
    limiters.keyed().try_acquire("own", 3).expect("a burst");
    for _ in 0..3 {
        limiters.reload(limits(file));
        for (name, handle) in ["any", "own"].into_iter().zip(&handles) {
            assert_eq!(limiters.keyed().available(name), 0, "{name}");
            // A handle from before is the same limiter.
            assert_eq!(handle.limiter().available(name), 0, "{name}");
        }
    }
}

#[test]
fn a_broken_file_leaves_the_old_limits_in_force() {
    let (limiters, _) = limiters("default = '1/min'");
    let keyed = limiters.keyed();
    let places = [(); 2].map(|()| keyed.reserve("api", 1).expect("a place"));
    let read = |file: &str| toml::from_str(file).map(|limits| limiters.reload(limits));
    for broken in
        ["", "default = '10/s brust 5'", "default = '0/s'", "default = '10/s'\nlimit = 5", "["]
    {
        assert!(read(broken).is_err(), "{broken}");
        assert_eq!(delay(&places[1]), 60_000);
        assert_eq!(limiters.limits(), limits("default = '1/min'"));
    }
}

#[test]
fn a_name_that_is_added_keeps_what_it_took_of_the_default() {
    let (limiters, clock) = limiters("default = '1/min burst 5'");
    let before = limiters.at("api").expect("the default");
    let keyed = limiters.keyed();
    keyed.try_acquire("api", 4).expect("a burst");
    limiters.reload(limits("default = '1/min burst 5'\nlimits.api = '1/s burst 10'"));
    assert_eq!(keyed.available("api"), 1);
    assert_eq!((keyed.available("other"), before.limiter().quota("api").limit), (5, 10));
    clock.advance(Duration::from_secs(3));
    assert_eq!(keyed.available("api"), 4);
}

#[test]
fn a_name_that_is_removed_gets_the_default() {
    let (limiters, clock) = limiters("default = '1/s burst 2'\nlimits.api = '10/s burst 20'");
    let keyed = limiters.keyed();
    keyed.try_acquire("api", 20).expect("a burst");
    let waiting = keyed.reserve("api", 2).expect("a place");
    assert_eq!(delay(&waiting), 200);
    limiters.reload(limits("default = '1/s burst 2'"));
    assert_eq!(delay(&waiting), 2000);
    clock.advance(Duration::from_secs(60));
    assert_eq!((delay(&waiting), keyed.queue_len("api")), (0, 0));
    assert_eq!(keyed.quota("api").limit, 2);
}

#[test]
fn a_name_that_is_removed_without_a_default_keeps_its_limit_for_those_who_wait() {
    let (limiters, clock) = limiters("limits = { api = '1/s burst 2', other = '1/s' }");
    let before = limiters.at("api").expect("it is listed");
    let keyed = limiters.keyed();
    keyed.try_acquire("api", 2).expect("a burst");
    let waiting = keyed.reserve("api", 2).expect("a place");
    let other = "limits.other = '1/s'";
    // Twice, so that the limit of the removed name is handed on.
    for _ in 0..2 {
        limiters.reload(limits(other));
        assert!(limiters.at("api").is_none());
        assert_eq!((delay(&waiting), before.limiter().queue_len("api")), (2000, 1));
    }
    // Listed again, it is the same limiter.
    limiters.reload(limits("limits = { api = '2/s burst 2', other = '1/s' }"));
    assert_eq!(delay(&waiting), 1000);
    clock.advance(Duration::from_secs(1));
    assert_eq!((delay(&waiting), keyed.queue_len("api")), (0, 0));
    assert_eq!(keyed.available("api"), 0);
}

#[test]
fn a_default_that_is_removed_stays_for_those_who_wait() {
    let (limiters, clock) = limiters("default = '1/s'");
    let keyed = limiters.keyed();
    let places = [(); 3].map(|()| keyed.reserve("api", 1).expect("a place"));
    for _ in 0..2 {
        limiters.reload(limits("limits.other = '1/s'"));
        assert!(limiters.at("api").is_none());
        assert_eq!(delay(&places[2]), 2000);
    }
    clock.advance(Duration::from_secs(2));
    assert_eq!((delay(&places[2]), keyed.queue_len("api")), (0, 0));
}

#[test]
fn a_name_without_a_limit_is_granted_nothing() {
    let (limiters, _) = limiters("limits.api = '1/s'");
    assert!(limiters.at("else").is_none());
    let error = limiters.keyed().try_acquire("else", 1).expect_err("no limit of this kind");
    assert!(matches!(error, Error::ExceedsCapacity(_)), "{error}");
}

#[test]
fn each_name_has_its_own_bounds_and_a_reload_changes_them() {
    let bounded = "default = { limits = '1/s', max_waiters = 1 }
        [limits]
        two = { limits = ['1/s', '9 in flight'], max_waiters = 2 }
        permits = { policy = 'smooth-bursty', rate = '1/s', max_queued_permits = 7 }
        free = '1/s'";
    let (limiters, _) = limiters(bounded);
    let keyed = limiters.keyed();
    let waiters = |name: &str, n: u32| {
        let places: Vec<_> = (0..20).map_while(|_| keyed.reserve(name, n).ok()).collect();
        places.len() - 1 // the first does not wait
    };
    let all = || [waiters("any", 1), waiters("two", 1), waiters("permits", 3), waiters("free", 1)];
    assert_eq!(all(), [1, 2, 2, 19]);
    // With callers at each name, whose places are the same lines afterwards.
    let kept: Vec<_> = ["any", "two", "permits", "free"].map(|name| keyed.reserve(name, 1)).into();
    limiters.reload(limits("default = '1/s'\nlimits.free = { limits = '1/s', max_waiters = 3 }"));
    drop(kept);
    assert_eq!(all(), [19, 19, 19, 3]);
    limiters.reload(limits(bounded));
    assert_eq!(all(), [1, 2, 2, 19]);
}

#[test]
fn all_names_share_one_limit_but_those_that_are_listed() {
    let (limiters, _) =
        limiters("per = 'all'\ndefault = '1/s burst 3'\nlimits.own = '1/s burst 2'");
    assert_eq!(limiters.limits().per(), Per::All);
    assert_eq!(Per::All.to_string(), "all");
    let keys = ["a", "b", "own"].map(|name| limiters.at(name).expect("a limit").key().clone());
    assert_eq!(keys, ["", "", "own"]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let granted = |name: &str| {
        (0..9)
            .take_while(|_| {
                runtime.block_on(limiters.at(name).expect("a limit").try_acquire(1)).is_ok()
            })
            .count()
    };
    assert_eq!([granted("a"), granted("b"), granted("own"), granted("c")], [3, 0, 2, 0]);
}

#[test]
fn each_name_that_a_pattern_matches_is_a_limiter_which_keeps_its_history() {
    let star = "default = '1/s'\nlimits.'search-*' = '1/s burst 3'";
    let (limiters, clock) = limiters(star);
    let keyed = limiters.keyed();
    keyed.try_acquire("search-a", 3).expect("a burst");
    assert_eq!(["search-a", "search-b"].map(|name| keyed.available(name)), [0, 3]);
    let waiting = keyed.reserve("search-a", 1).expect("a place");
    // In full, and by another pattern.
    limiters.reload(limits(&format!("{star}\nlimits.search-a = '2/s burst 5'")));
    assert_eq!((delay(&waiting), keyed.quota("search-a").limit), (500, 5));
    limiters.reload(limits("limits.'*-a' = '4/s burst 4'"));
    assert_eq!((delay(&waiting), keyed.quota("search-a").limit), (250, 4));
    assert!(limiters.at("search-b").is_none());
    // Of none any more: those who wait keep the last.
    for _ in 0..2 {
        limiters.reload(limits("limits.other = '1/s'"));
        assert!(limiters.at("search-a").is_none());
        assert_eq!((delay(&waiting), keyed.quota("search-a").limit), (250, 4));
    }
    clock.advance(Duration::from_millis(250));
    assert_eq!(keyed.queue_len("search-a"), 0);
}

#[test]
fn all_others_share_one_limit_but_those_that_a_pattern_matches() {
    let (limiters, _) = limiters("per = 'all'\ndefault = '1/s'\nlimits.'own-*' = '1/s'");
    let keys =
        ["a", "own-1", "own-2"].map(|name| limiters.at(name).expect("a limit").key().clone());
    assert_eq!(keys, ["", "own-1", "own-2"]);
}

#[test]
fn an_unlimited_name_waits_for_nothing_but_a_pause() {
    let (limiters, clock) =
        limiters("default = '1/min'\nheadroom = 0.05\nlimits.'*-own' = 'unlimited'");
    let keyed = limiters.keyed();
    for name in ["a-own", "b-own"] {
        for _ in 0..3 {
            keyed.try_acquire(name, u32::MAX).expect("no limit");
        }
    }
    keyed.try_acquire("other", 1).expect("the first");
    keyed.try_acquire("other", 1).expect_err("the default");
    keyed.pause_for("a-own", Duration::from_secs(7)).expect("a key");
    let waiting = keyed.reserve("a-own", 1).expect("a place");
    assert_eq!(delay(&waiting), 7_000);
    // Limited from now on: as new, for those who wait as well.
    limiters.reload(limits("default = '1/min'"));
    clock.advance(Duration::from_secs(7));
    assert_eq!((delay(&waiting), keyed.available("a-own")), (0, 0));
}

#[test]
fn a_change_of_tier_keeps_what_was_taken_and_who_waits() {
    let file = "tiers.free = '1/min burst 5'\ntiers.pro = '1/s burst 20'";
    let (limiters, clock) = limiters(file);
    let keyed = limiters.keyed();
    let tier = |tier: &str| limiters.at_tier("customer", tier).expect("a tier");
    let available = |tier: &AtKey<Name, AllOf>| tier.limiter().available("customer");
    let free = tier("free");
    free.blocking_try_acquire(4).expect("a burst");
    assert_eq!((available(&free), keyed.quota("customer").limit), (1, 5));
    let waiting = keyed.reserve("customer", 3).expect("a place");
    assert_eq!(delay(&waiting), 120_000);
    // Those who wait feel the change, and a handle from before is the same limiter.
    let pro = tier("pro");
    assert_eq!((delay(&waiting), keyed.quota("customer").limit), (2_000, 20));
    clock.advance(Duration::from_secs(3));
    assert_eq!((available(&pro), available(&free), keyed.queue_len("customer")), (1, 1, 0));
    // Nothing is granted twice by changes to and fro.
    for _ in 0..3 {
        assert_eq!(available(&tier("free")), 1);
        assert_eq!(available(&tier("pro")), 1);
    }
    // Another customer is another limiter.
    limiters.at_tier("other", "free").expect("a tier").blocking_try_acquire(5).expect("a burst");
    assert_eq!((keyed.available("other"), available(&pro)), (0, 1));
    assert!(limiters.at_tier("customer", "gold").is_none());
    assert_eq!(keyed.quota("customer").limit, 20);
}

#[test]
fn a_reload_changes_tiers_for_all_their_names() {
    let (limiters, _) = limiters("tiers.free = '1/s burst 5'\ntiers.pro = '1/s burst 9'");
    let names = ["a", "b", "c"];
    let keyed = limiters.keyed();
    let all = |tiers: [&str; 3]| {
        for (name, tier) in names.into_iter().zip(tiers) {
            limiters.at_tier(name, tier).expect("a tier").blocking_try_acquire(1).expect("a burst");
        }
        names.map(|name| (keyed.quota(name).limit, keyed.available(name)))
    };
    assert_eq!(all(["free", "pro", "free"]), [(5, 4), (9, 8), (5, 4)]);
    let waiting = keyed.reserve("c", 5).expect("a place");
    limiters.reload(limits(
        "tiers.free = '2/s burst 7'\ntiers.pro = '1/s burst 3'\nlimits.c = '10/s burst 8'",
    ));
    // A listed name has its own limit, at each tier.
    assert_eq!(names.map(|name| keyed.quota(name).limit), [7, 3, 8]);
    assert_eq!((keyed.available("a"), keyed.available("b"), delay(&waiting)), (4, 3, 100));
    drop(limiters.at_tier("c", "pro"));
    assert_eq!(keyed.quota("c").limit, 8);
    // A tier that has gone: those who wait keep it; a default takes its place.
    limiters.reload(limits("tiers.free = '2/s burst 7'"));
    assert!(limiters.at_tier("b", "pro").is_none());
    assert_eq!(names.map(|name| keyed.quota(name).limit), [7, 3, 8]);
    limiters.reload(limits("default = '1/s burst 2'\ntiers.free = '2/s burst 7'"));
    assert_eq!(names.map(|name| keyed.quota(name).limit), [7, 2, 2]);
}

#[test]
fn a_tier_of_idle_names_takes_no_memory_and_bounds_their_queues() {
    let (limiters, clock) = limiters(
        "default = '1/s burst 2'\ntiers.free = { limits = '1/s burst 3', max_waiters = 1 }",
    );
    let free = |name: &str| limiters.at_tier(name, "free").expect("a tier");
    for name in 0..1000 {
        free(&name.to_string()).blocking_try_acquire(1).expect("a burst");
    }
    let kept = free("0");
    clock.advance(Duration::from_secs(60));
    limiters.keyed().remove_idle();
    assert_eq!(limiters.keyed().len(), 0);
    // A handle has its tier with it.
    kept.blocking_try_acquire(3).expect("a burst");
    let place = kept.blocking_reserve(1).expect("a place");
    assert!(matches!(kept.blocking_reserve(1), Err(Error::QueueFull { .. })));
    drop(place);
    // Without a tier it is a name as any other.
    assert_eq!((limiters.keyed().quota("1").limit, limiters.keyed().quota("0").limit), (2, 3));
}

#[test]
fn headroom_in_a_file_is_for_all_its_limits() {
    let file =
        "default = '100/min burst 20'\nlimits.api = ['60/min sliding window', '10 in flight']";
    let less = limits(&format!("headroom = 0.05\n{file}"));
    let text = |name: &str| less.get(name).expect("a limit").policy().to_string();
    assert_eq!(
        [text("any"), text("api")],
        ["95/min burst 19", "60/63158ms sliding window, 10 in flight"]
    );
    assert_eq!(limits(&format!("headroom = 0\n{file}")), limits(file));
    let tiers = limits("headroom = 0.05\ntiers.pro = '100/min burst 20'");
    assert_eq!(tiers.get_tier("pro").expect("a tier").policy().to_string(), "95/min burst 19");
}

#[test]
fn the_initial_tokens_of_a_file_are_those_of_a_name_that_comes() {
    let (limiters, clock) = limiters("default = '1/s burst 5 initial 2'");
    assert_eq!(limiters.keyed().available("api"), 2);
    limiters.keyed().try_acquire("api", 2).expect("initial tokens");
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiters.keyed().available("api"), 1);
}

/// After the last reload all names have the last limits, whichever threads reloaded before.
#[test]
fn reloads_of_several_threads_end_with_one_file_for_all_names() {
    let (limiters, _) = limiters("default = '1/s burst 1'");
    let names: Vec<_> = (0..300).map(|name| name.to_string()).collect();
    for name in &names {
        limiters.keyed().try_acquire(name, 1).expect("the first");
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
    let limit = limits.get("0").expect("the default").policy();
    for name in &names {
        let size = limiters.keyed().quota(name).limit;
        assert_eq!(*limit.to_string(), format!("1/s burst {size}"), "{name}");
    }
}
