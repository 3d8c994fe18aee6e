//! What the types say of themselves: their settings, and their `Debug` forms.

use std::fmt::Debug;
use std::time::Duration;

use tollgate::state::PolicyExt;
use tollgate::{
    Gcra, InFlight, KeyedRateLimiter, LeakyBucket, Limiter, ManualClock, Part, Policy, Rate,
    RateLimiter, Rated, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use crate::support::outcome;

fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_second(10.0), 10)
}

#[test]
fn a_policy_has_the_settings_that_it_was_given() {
    let (rate, other) = (Rate::per_second(10.0), Rate::per_second(7.0));
    let second = Duration::from_secs(1);
    fn check<P: Policy + Rated>(policy: P, with: fn(P, Duration) -> P, other: Rate) {
        let policy = with(policy, Duration::from_millis(7));
        assert_eq!(policy.catch_up(), Duration::from_millis(7));
        let changed = policy.with_rate(other);
        assert_eq!((changed.rate(), changed.catch_up().as_millis()), (other, 7));
    }
    check(bucket(), TokenBucket::with_catch_up, other);
    check(Gcra::new(9, 10, second), Gcra::with_catch_up, other);
    check(LeakyBucket::new(rate, 9), LeakyBucket::with_catch_up, other);
    check(SmoothBursty::new(rate), SmoothBursty::with_catch_up, other);
    check(SmoothWarmingUp::new(rate, second), SmoothWarmingUp::with_catch_up, other);
}

#[track_caller]
fn shows(value: &impl Debug, words: &[&str]) {
    let shown = format!("{value:?}");
    assert!(words.iter().all(|word| shown.contains(word)), "{shown}");
}

#[test]
fn all_that_a_program_holds_is_shown() {
    let clock = ManualClock::new();
    let builder = || RateLimiter::builder(bucket()).clock(&clock).name("calls");
    shows(&builder(), &["RateLimiterBuilder", "calls"]);
    let limiter = builder().build();
    shows(&limiter.try_acquire(3).expect("there"), &["Grant", "cost: 3", "waited: 0"]);
    shows(&limiter.try_acquire(3).expect("there").metered(), &["Metered", "cost: 3"]);

    let builder = || KeyedRateLimiter::<u64, _>::builder(bucket()).clock(&clock).name("users");
    shows(&builder(), &["RateLimiterBuilder", "users"]);
    let keyed = builder().build();
    keyed.at(&7).try_acquire(1).expect("there");
    shows(&keyed, &["KeyedRateLimiter", "users", "keys: 1"]);
    shows(&keyed.at(&7), &["AtKey", "users"]);
    shows(&keyed.at(&7).acquire(1), &["Acquire", "cost: 1"]);

    let places = RateLimiter::with_clock(InFlight::new(50), &clock);
    let both = limiter.and(&places);
    shows(&both, &["And", "calls"]);
    shows(&both.acquire(1), &["Acquire", "cost: 1"]);
    let grant = outcome(&mut Box::pin(both.acquire(2))).expect("there");
    shows(&grant, &["AndGrant", "cost: 2"]);

    shows(&Part::new(0, 2), &["Part(limit 1 of 2)"]);
}

#[test]
fn a_feedback_is_shown_and_what_it_judges() {
    use tollgate::block_on;
    use tollgate::feedback::{Feedback, Servers};

    let limiter = RateLimiter::with_clock(InFlight::new(10), ManualClock::new());
    let builder = Feedback::builder(limiter.clone()).judge(|response, answer| {
        answer.bucket = Some(String::from_utf8_lossy(response.body()).into_owned());
    });
    let feedback = builder.build();
    let mut call = block_on(feedback.acquire(1)).expect("granted");
    shows(&call, &["Call"]);
    let none: [(&str, &str); 0] = [];
    assert_eq!(
        block_on(call.observe_body(200u16, &none, b"never")).bucket.as_deref(),
        Some("never")
    );
    assert_eq!(block_on(feedback.sent(1).observe(200u16, &none)).bucket.as_deref(), Some(""));
    assert_eq!(tollgate::Granted::cost(&call), 1);
    block_on(feedback.sent(1).refused(Some(Duration::from_secs(30))));
    assert_eq!(feedback.server_state().pause, Some(Duration::from_secs(30)));
    shows(&feedback, &["Feedback"]);
    shows(&Servers::new(limiter), &["Servers"]);
}
