//! What broke once.

use std::time::Duration;

use futures::executor::block_on;
use futures::future::FutureExt;
use tollgate::feedback::{Feedback, Unit, Verdict};
use tollgate::{
    Clock, Granted, InFlight, KeyedRateLimiter, Limiter, ManualClock, Rate, RateLimiter,
    TokenBucket,
};

const EMPTY: [(&str, &str); 2] = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "20")];

#[tokio::test]
async fn a_pause_of_the_operator_is_not_ended_by_an_answer() {
    let clock = ManualClock::auto_advance();
    let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(100.0), 100), &clock);
    let feedback = Feedback::new(limiter.clone());
    feedback.acquire(1).await.expect("granted").observe(200u16, &EMPTY).await;
    let mut call = feedback.acquire(1).await.expect("granted");
    assert_eq!(clock.elapsed().as_secs(), 20);
    limiter.pause_for(Duration::from_secs(3600));
    call.observe(200u16, &[("x-ratelimit-remaining", "49"), ("x-ratelimit-reset", "20")]).await;
    limiter.acquire(1).await.expect("granted");
    assert_eq!(clock.elapsed().as_secs(), 3620);
}

#[tokio::test]
async fn callers_of_the_limiter_itself_get_places_in_flight_after_a_reset() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(InFlight::new(10), &clock);
    let feedback = Feedback::new(limiter.clone());
    let grant = limiter.acquire(1).await.expect("granted");
    feedback.sent(1).observe(200u16, &EMPTY).await;
    drop(grant);
    clock.set(Duration::from_secs(20));
    let places: Vec<_> = (0..10).map(|_| limiter.try_acquire(1)).collect();
    assert!(places.iter().all(Result::is_ok), "{places:?}");
}

#[tokio::test]
async fn one_call_goes_first_after_a_refusal_if_no_number_counts_requests() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Rate::per_second(1000.0), 1000);
    let limiter = RateLimiter::with_clock((InFlight::new(10), bucket), &clock);
    let feedback = Feedback::builder(limiter).units([None, Some(Unit::Tokens)]).build();
    let mut first = feedback.acquire((1, 10)).await.expect("granted");
    first.observe(429u16, &[("retry-after", "7")]).await;
    drop(first);
    // The bucket stores nothing in a pause: ten tokens come in the first 10 ms after it.
    clock.advance(Duration::from_millis(7_009));
    let mut first = std::pin::pin!(feedback.acquire((1, 10)));
    assert!(first.as_mut().now_or_never().is_none());
    clock.advance(Duration::from_millis(1));
    let first = first.now_or_never().expect("ten tokens").expect("granted");
    let second = feedback.acquire((1, 10)).now_or_never();
    assert!(second.is_none(), "{second:?}");
    drop(first);
}

#[tokio::test]
async fn calls_without_an_answer_count_against_the_window_that_has_begun() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(1e6), 1000), &clock);
    let feedback = Feedback::new(limiter);
    let headers = |remaining: &'static str| {
        [
            ("x-ratelimit-limit", "50"),
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset", "20"),
        ]
    };
    for _ in 0..2 {
        feedback.acquire(1).await.expect("granted").observe(200u16, &headers("49")).await;
        clock.advance(Duration::from_secs(21));
    }
    // The server takes connections and drops them: 50 calls at once, as before, then one by one.
    let calls: Vec<_> = (0..50).map(|_| feedback.blocking_acquire(1)).collect();
    drop(calls);
    let one = feedback.acquire(1).await.expect("granted");
    let two = tokio::time::timeout(Duration::ZERO, feedback.acquire(1)).await;
    assert!(two.is_err(), "{two:?}");
    drop(one);
}

#[tokio::test]
async fn a_server_that_was_down_is_believed_as_before() {
    let clock = ManualClock::auto_advance();
    let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(1e6), 1000), &clock);
    let feedback = Feedback::new(limiter);
    let headers = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "60s"),
    ];
    feedback.acquire(1).await.expect("granted").observe(200u16, &headers).await;
    feedback.acquire(1).await.expect("granted").observe(503u16, &[("retry-after", "10")]).await;
    feedback.acquire(1).await.expect("granted").observe(200u16, &headers).await;
    // A permit a second, not all of them after a minute.
    let begin = clock.elapsed();
    drop(feedback.acquire(1).await.expect("granted"));
    assert_eq!((clock.elapsed() - begin).as_secs(), 1);
}

/// How many milliseconds the first call after a 429 with these fields waits, and how many calls go then without an answer.
fn after_refusal(headers: &[(&str, &str)]) -> (u128, u32) {
    let clock = ManualClock::auto_advance();
    let policy = TokenBucket::new(Rate::per_second(1e6), 1000);
    let feedback = Feedback::new(RateLimiter::with_clock(policy, &clock));
    feedback.blocking_acquire(1).expect("granted").blocking_observe(429u16, headers);
    let first = feedback.blocking_acquire(1).expect("granted");
    let waited = clock.elapsed();
    let mut others = Vec::new();
    while let Ok(call) = block_on(feedback.try_acquire_timeout(1, Duration::ZERO)) {
        others.push(call);
    }
    drop(first);
    (waited.as_millis(), u32::try_from(others.len()).expect("few"))
}

/// RFC 9110, 10.2.3: the server's own word on when to call again. The draft of the IETF's fields has it so: it takes
/// precedence over when a window ends.
#[test]
fn the_time_of_a_refusal_takes_precedence_over_the_reset_of_a_window() {
    let openai = [
        ("retry-after-ms", "45"),
        ("x-ratelimit-limit-requests", "1200"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "59.995s"),
    ];
    let anthropic = [
        ("date", "Wed, 01 Jan 2025 00:00:00 GMT"),
        ("retry-after", "1"),
        ("anthropic-ratelimit-requests-limit", "60"),
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "2025-01-01T00:01:00Z"),
    ];
    let ietf = [("retry-after", "1"), ("ratelimit", "\"default\";r=0;t=60")];
    let x = [("retry-after", "1"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "60")];
    for (headers, millis) in
        [(&openai[..], 45), (&anthropic[..], 1000), (&ietf[..], 1000), (&x[..], 1000)]
    {
        // One call goes first, whose answer says more.
        assert_eq!(after_refusal(headers), (millis, 0), "{headers:?}");
    }
    // Without a time the reset is all there is; and of a bucket, the time of the first permit.
    assert_eq!(after_refusal(&x[1..]), (60_000, 0));
    assert_eq!(after_refusal(&openai[1..]), (49, 0));
}

/// Its times are too short again and again, whatever it says of its window.
#[test]
fn a_server_that_names_a_short_time_again_and_again_is_not_hammered() {
    for headers in [
        &[("retry-after-ms", "45")][..],
        &[
            ("retry-after-ms", "45"),
            ("x-ratelimit-limit-requests", "1200"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "59.995s"),
        ],
        &[
            ("retry-after", "1"),
            ("x-ratelimit-limit", "60"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "60"),
        ],
    ] {
        let clock = ManualClock::auto_advance();
        let policy = TokenBucket::new(Rate::per_second(1e6), 1000);
        let feedback = Feedback::new(RateLimiter::with_clock(policy, &clock));
        let mut calls = 0;
        while clock.elapsed() < Duration::from_secs(60) {
            let mut call = feedback.blocking_acquire(1).expect("granted");
            call.blocking_observe(429u16, headers);
            calls += 1;
        }
        // As long as the window, if it names one.
        let most = if headers.len() > 1 { 14 } else { 70 };
        assert!(calls <= most, "{calls} calls in a minute: {headers:?}");
    }
}

/// A limiter of tokens or bytes, of a server that counts requests.
#[test]
fn a_call_is_one_request_whatever_it_costs_the_limiter() {
    let headers =
        [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "56"), ("x-ratelimit-reset", "60")];
    let call = |feedback: &Feedback<RateLimiter<TokenBucket>>| {
        feedback.blocking_acquire(800).expect("granted").blocking_observe(200u16, &headers);
    };
    let clock = ManualClock::auto_advance();
    let tokens =
        RateLimiter::with_clock(TokenBucket::new(Rate::per_minute(90_000.0), 90_000), &clock);
    let feedback = Feedback::new(tokens.clone());
    (0..10).for_each(|_| call(&feedback));
    assert_eq!((clock.elapsed(), tokens.available()), (Duration::ZERO, 82_000));
    assert_eq!(feedback.server_state().meters[0].1.remaining, Some(56));
    // One that counts what the server counts.
    let points =
        RateLimiter::with_clock(TokenBucket::new(Rate::per_minute(90_000.0), 90_000), &clock);
    let feedback = Feedback::builder(points).units([Some(Unit::Requests)]).build();
    call(&feedback);
    assert!(feedback.try_acquire(57).blocking_wait().is_err());
    assert!(feedback.try_acquire(56).blocking_wait().is_ok());
    // And one of whose tokens the server says what remains.
    let tokens =
        RateLimiter::with_clock(TokenBucket::new(Rate::per_minute(90_000.0), 90_000), &clock);
    let feedback = Feedback::builder(tokens).units([Some(Unit::Tokens)]).build();
    let mut call = feedback.blocking_acquire(800).expect("granted");
    call.blocking_observe(200u16, &[("x-ratelimit-remaining-tokens", "5000")]);
    drop(call);
    assert!(feedback.try_acquire(5_001).blocking_wait().is_err());
    assert!(feedback.try_acquire(5_000).blocking_wait().is_ok());
}

/// A limiter of ten a second, whose server has room for nothing in the next 20 seconds.
fn exhausted(clock: impl Into<Clock>) -> Feedback<RateLimiter<TokenBucket>> {
    let policy = TokenBucket::new(Rate::per_second(10.0), 1);
    let feedback = Feedback::new(RateLimiter::with_clock(policy, clock));
    feedback.blocking_acquire(1).expect("granted").blocking_observe(200u16, &EMPTY);
    feedback
}

#[test]
fn callers_that_wait_for_the_server_are_counted_and_so_is_their_wait() {
    let clock = ManualClock::new();
    let feedback = exhausted(&clock);
    let second = Duration::from_secs(1);
    let before = Limiter::stats(&feedback);
    assert!(feedback.try_acquire_timeout(1, second).blocking_wait().is_err());
    let mut left = feedback.acquire(1);
    assert!((&mut left).now_or_never().is_none());
    let place = block_on(feedback.acquire(1).reserve()).expect("a place");
    let mut waiting = feedback.acquire(1);
    assert!((&mut waiting).now_or_never().is_none());
    assert_eq!(Limiter::queue_len(&feedback), 3);
    assert_eq!(place.delay().as_secs(), 20);
    drop(left);
    assert_eq!(Limiter::queue_len(&feedback), 2);
    clock.advance(Duration::from_secs(30));
    // The first one goes alone, until it is answered.
    assert_eq!(Limiter::queue_len(&feedback), 1);
    let mut first = place.blocking_wait().expect("granted");
    assert_eq!(first.waited().as_secs(), 20);
    first.blocking_observe(200u16, &[("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "20")]);
    assert_eq!(Limiter::queue_len(&feedback), 0);
    // It comes to the limiter when it is polled.
    assert!((&mut waiting).now_or_never().is_none());
    clock.advance(Duration::from_millis(100));
    let second = waiting.now_or_never().expect("it waits").expect("granted");
    assert_eq!(second.waited().as_secs(), 30);
    let stats = Limiter::stats(&feedback);
    assert_eq!(stats.granted - before.granted, 2);
    assert_eq!(stats.refused - before.refused, 1);
    assert_eq!(stats.given_up - before.given_up, 1);
    assert_eq!((stats.waited - before.waited).as_secs(), 50);
}

/// A look at its place is the first to see that the server lets it through.
#[tokio::test(start_paused = true)]
async fn a_look_at_a_place_behind_a_late_alarm_does_not_hang() {
    let feedback = exhausted(Clock::tokio());
    let place = feedback.reserve(1).await.expect("a place");
    // Without a turn for the task that sounds the alarm.
    let mut advanced = Box::pin(tokio::time::advance(Duration::from_secs(21)));
    let _ = (&mut advanced).now_or_never();
    let _ = place.delay();
    advanced.await;
    let waited = tokio::time::timeout(Duration::from_secs(60), place.wait()).await;
    assert!(waited.expect("it hangs").is_ok());
}

/// The call that opens the way ends in another runtime, whose thread is busy from then on.
#[test]
fn a_caller_that_waits_for_a_server_depends_on_its_own_runtime_at_most() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().expect("a runtime")
    };
    let policy = TokenBucket::new(Rate::per_second(10.0), 1);
    let feedback = Feedback::new(RateLimiter::with_clock(policy, Clock::tokio()));
    // One call at a time.
    let one = [("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "3600")];
    feedback.blocking_acquire(1).expect("granted").blocking_observe(200u16, &one);
    let probe = feedback.blocking_acquire(1).expect("granted");
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let waits = feedback.clone();
    let waiter = std::thread::spawn(move || {
        let waited = runtime().block_on(async { waits.acquire(1).await.map(|call| call.waited()) });
        drop(done);
        waited
    });
    while Limiter::queue_len(&feedback) == 0 {
        std::thread::yield_now();
    }
    runtime().block_on(async {
        let mut probe = probe;
        probe.observe(200u16, &[("x-ratelimit-remaining", "50")]).await;
        // This thread does nothing for the others any more.
        let waited = is_done.recv_timeout(Duration::from_secs(20));
        assert_eq!(waited, Err(std::sync::mpsc::RecvTimeoutError::Disconnected), "it hangs");
    });
    waiter.join().expect("no panic").expect("granted");
}

/// Each gives back the place for which the next one waits: on the stack there is one of them.
#[test]
fn a_crowd_that_waits_for_a_server_goes_on_one_behind_the_other() {
    let run = || {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(1e3), 100), &clock);
        let feedback = Feedback::new(limiter.clone());
        let mut refused = feedback.blocking_acquire(1).expect("a full bucket");
        // One call goes after the reset, and the next one when that is answered.
        let headers = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "10")];
        refused.blocking_observe(200u16, &headers);
        drop(refused);
        limiter.pause_for(Duration::from_secs(3600));
        let minute = Duration::from_secs(60);
        let crowd: Vec<_> = (0..5_000)
            .map(|_| block_on(feedback.try_acquire_timeout(1, minute).reserve()).expect("a place"))
            .collect();
        clock.advance(Duration::from_secs(11));
        for place in crowd {
            let error = place.blocking_wait().expect_err("the limiter is paused");
            assert!(matches!(error, tollgate::Error::Denied { .. }), "{error}");
        }
    };
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(run).expect("a thread");
    thread.join().expect("no fault");
}

#[tokio::test]
async fn a_program_judges_a_call_by_the_fields_and_the_body_of_its_response() {
    for (field, body, is_taken) in [
        ("yes", "", true),
        ("no", "", false),
        ("no", "a quota is used up", true),
        ("no", "a quot", false),
    ] {
        let limiter = RateLimiter::with_clock(InFlight::new(1), ManualClock::new());
        let feedback = Feedback::builder(limiter)
            .judge(|response, answer| {
                let field = response.headers().get("x-final");
                if field.is_some_and(|field| field == "yes")
                    || response.body().ends_with(b"quota is used up")
                {
                    answer.verdict = Verdict::Accepted;
                }
                assert_eq!(response.headers().get("x-other"), None);
            })
            .build();
        let mut call = feedback.acquire(1).await.expect("a place");
        let answer = call.observe_body(429u16, &[("x-final", field)], body.as_bytes()).await;
        assert_eq!(answer.is_accepted(), is_taken, "{field} {body}");
    }
}

/// The answer itself is heard all the same.
#[test]
fn a_limiter_that_can_no_longer_be_paused_is_counted() {
    let limiter = KeyedRateLimiter::<u32, _>::with_clock(InFlight::new(10), ManualClock::new());
    let feedback = Feedback::new(limiter.at(&7).into_owned());
    let mut call = block_on(feedback.acquire(1)).expect("granted");
    limiter.close();
    block_on(call.observe(429u16, &[("retry-after", "30")]));
    assert_eq!((feedback.server_state().pauses, feedback.server_state().failed), (1, 1));
}

/// As the middleware reports it.
#[test]
fn two_limiters_as_one_both_hear_that_a_server_does_not_answer() {
    let limiter = || RateLimiter::with_clock(InFlight::new(10), ManualClock::new());
    let [first, second] = [(); 2].map(|()| Feedback::new(limiter()));
    let both = first.and(&second);
    for _ in 0..9 {
        block_on(both.acquire(1)).expect("granted").hear_failure();
    }
    assert!(first.server_state().is_down && second.server_state().is_down);
}
