//! Each dialect by the examples of its documentation.

use std::time::Duration;

use futures::executor::block_on;
use tollgate::feedback::{Answer, Dialect, Dialects, Feedback, Field, Meter, Unit, Verdict, When};
use tollgate::{InFlight, ManualClock, RateLimiter};

fn read(status: u16, headers: &[(&str, &str)]) -> Answer {
    Dialects::default().read(status, headers)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[track_caller]
fn meter(answer: &Answer, unit: Unit) -> (Option<u64>, Option<u64>, Option<When>) {
    let Meter { limit, remaining, reset, .. } = answer.meter(unit).expect("said");
    (limit, remaining, reset)
}

#[test]
fn retry_after_in_seconds_and_in_the_three_forms_of_a_date() {
    let now = secs(784_111_777 - 60);
    for (text, wait) in [
        ("120", Some(120)),
        // With a unit, and as the date that it should not be.
        ("120s", Some(120)),
        ("2m", Some(120)),
        ("784111777", Some(784_111_777)),
        ("1784111777", Some(1_000_000_060)),
        ("1994-11-06T08:49:37Z", Some(60)),
        // Fields that were sent several times are one list: the longest time counts.
        ("7, 7", Some(7)),
        ("7,9, 8", Some(9)),
        ("30, Sun, 06 Nov 1994 08:49:37 GMT", Some(60)),
        ("Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:07 GMT, 45", Some(60)),
        ("7, soon", None),
        ("7,", None),
        (",", None),
        ("0", Some(0)),
        (" 7 ", Some(7)),
        ("Sun, 06 Nov 1994 08:49:37 GMT", Some(60)),
        ("Sunday, 06-Nov-94 08:49:37 GMT", Some(60)),
        ("Sun Nov  6 08:49:37 1994", Some(60)),
        // It has passed.
        ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("1e3", None),
        ("NaN", None),
        ("Sun, 06 Nov 1994 08:49:37 CET", None),
    ] {
        let date = ("Date", "Sun, 06 Nov 1994 08:48:37 GMT");
        let answer = read(429, &[("Retry-After", text), date]);
        assert_eq!(answer.retry_after(secs(0)), wait.map(secs), "{text}");
        assert_eq!(answer.malformed, u32::from(wait.is_none()), "{text}");
        assert_eq!(answer.verdict, Verdict::Refused);
    }
    let answer = read(429, &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]);
    assert_eq!(answer.retry_after(now), Some(secs(60)), "by our clock");
    assert_eq!(read(429, &[("retry-after", "1.5")]).retry_after(now), Some(millis(1500)));
}

/// Azure's guidelines for its SDKs, <https://github.com/Azure/azure-sdk-for-rust/pull/1517>: both before
/// `Retry-After`.
#[test]
fn milliseconds_to_wait_wherever_they_come() {
    for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
        let answer = read(429, &[("retry-after", "1"), (name, "45")]);
        assert_eq!(answer.retry_after(secs(0)), Some(millis(45)), "{name}");
        let answer = read(503, &[(name, "45, 45")]);
        assert_eq!(answer.retry_after(secs(0)), Some(millis(45)), "{name}");
        let answer = read(429, &[(name, "45.25")]);
        assert_eq!(answer.retry_after(secs(0)), Some(Duration::from_micros(45_250)), "{name}");
        let only = Dialects::only(Dialect::new("own", &[]));
        assert_eq!(only.read(429u16, &[(name, "45")]).retry_after(secs(0)), Some(millis(45)));
        let answer = read(429, &[("retry-after", "1"), (name, "soon")]);
        assert_eq!((answer.retry_after(secs(0)), answer.malformed), (Some(secs(1)), 1), "{name}");
    }
}

#[test]
fn a_time_to_wait_is_a_refusal_with_the_statuses_of_servers_that_cannot_answer() {
    for field in ["retry-after", "retry-after-ms", "x-ms-retry-after-ms"] {
        for status in [500, 502, 503, 504, 520, 529] {
            assert_eq!(read(status, &[(field, "9")]).verdict, Verdict::Unavailable, "{status}");
        }
        // When to poll, to follow a redirect, or to send this one request again.
        for status in [200, 202, 301, 307, 403, 404, 413] {
            let answer = read(status, &[(field, "9")]);
            assert_eq!(answer.verdict, Verdict::Accepted, "{status}");
            assert!(answer.wait.is_some(), "{status}");
        }
    }
    for status in [500, 502, 504] {
        let answer = read(status, &[("retry-after", "soon")]);
        assert_eq!((answer.verdict, answer.is_refused()), (Verdict::Accepted, false), "{status}");
    }
    assert_eq!(read(503, &[]).verdict, Verdict::Unavailable);
}

type Fields<'a> = &'a [(&'a str, &'a str)];

/// What each of these servers sends in `X-RateLimit-Reset` or `X-Rate-Limit-Reset`: the names are the same, the forms
/// are not.
#[test]
fn a_name_of_several_servers_is_read_by_its_form() {
    let now = secs(1_795_435_200);
    let date = ("Date", "Mon, 23 Nov 2026 12:00:00 GMT");
    let servers: [(&str, Fields, Option<u64>); 6] = [
        // https://github.com/reddit/reddit/wiki/API: "approximate number of seconds to end of period".
        (
            "reddit",
            &[
                date,
                ("X-Ratelimit-Used", "597"),
                ("X-Ratelimit-Remaining", "3.0"),
                ("X-Ratelimit-Reset", "40"),
            ],
            None,
        ),
        // https://www.yiiframework.com/doc/guide/2.0/en/rest-rate-limiting: the seconds until all are back.
        (
            "yii",
            &[
                date,
                ("X-Rate-Limit-Limit", "100"),
                ("X-Rate-Limit-Remaining", "3"),
                ("X-Rate-Limit-Reset", "40"),
            ],
            Some(100),
        ),
        // https://github.com/stefanprodan/AspNetCoreRateLimit/wiki/IpRateLimitMiddleware: the limit is the period.
        (
            "AspNetCoreRateLimit",
            &[
                date,
                ("X-Rate-Limit-Limit", "15m"),
                ("X-Rate-Limit-Remaining", "3"),
                ("X-Rate-Limit-Reset", "2026-11-23T12:00:40.0000000Z"),
            ],
            None,
        ),
        // https://github.com/cristipufu/aspnetcore-redis-rate-limiting/wiki/Rate-Limiting-Headers
        (
            "aspnetcore-redis-rate-limiting",
            &[
                date,
                ("x-ratelimit-limit", "100/30m"),
                ("x-ratelimit-remaining", "3"),
                ("x-ratelimit-reset", "40"),
            ],
            Some(100),
        ),
        // https://docs.x.com/x-api/fundamentals/rate-limits: Unix time.
        (
            "x",
            &[
                date,
                ("x-rate-limit-limit", "900"),
                ("x-rate-limit-remaining", "3"),
                ("x-rate-limit-reset", "1795435240"),
            ],
            Some(900),
        ),
        // https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api: UTC epoch seconds.
        (
            "github",
            &[
                date,
                ("x-ratelimit-limit", "60"),
                ("x-ratelimit-remaining", "3"),
                ("x-ratelimit-used", "57"),
                ("x-ratelimit-resource", "core"),
                ("x-ratelimit-reset", "1795435240"),
            ],
            Some(60),
        ),
    ];
    for (name, headers, limit) in servers {
        let answer = read(200, headers);
        let (read_limit, remaining, reset) = meter(&answer, Unit::Requests);
        let reset = reset.map(|reset| reset.after(now));
        assert_eq!((read_limit, remaining), (limit, Some(3)), "{name}");
        assert_eq!((reset, answer.malformed), (Some(secs(40)), 0), "{name}");
        // Three more, and then none before the reset.
        let clock = ManualClock::auto_advance();
        let limiter = RateLimiter::with_clock(InFlight::new(10), &clock);
        let feedback = Feedback::new(limiter);
        feedback.blocking_acquire(1).expect("granted").blocking_observe(200u16, headers);
        for _ in 0..3 {
            drop(feedback.blocking_acquire(1).expect("granted"));
        }
        assert_eq!(clock.elapsed(), Duration::ZERO, "{name}");
        drop(feedback.blocking_acquire(1).expect("granted"));
        assert_eq!(clock.elapsed(), secs(40), "{name}");
    }
    // Reddit's 403 is no limit, as GitHub's may be.
    let answer = read(403, &[("x-ratelimit-used", "600"), ("x-ratelimit-remaining", "0")]);
    assert!(answer.is_accepted());
    // The period of AspNetCoreRateLimit, in the place of a limit.
    assert_eq!(read(200, servers[2].1).malformed, 0);
}

/// <https://shopify.dev/docs/api/admin-rest/usage/rate-limits>: what was used, and the size of the bucket. It says
/// nothing of when it is empty.
#[test]
fn shopify() {
    let answer = read(200, &[("X-Shopify-Shop-Api-Call-Limit", "32/40")]);
    assert_eq!(meter(&answer, Unit::Requests), (Some(40), Some(8), None));
    assert_eq!((answer.dialect, answer.malformed), (Some("shopify"), 0));
    let full = [("X-Shopify-Shop-Api-Call-Limit", "40/40"), ("Retry-After", "2.0")];
    let answer = read(429, &full);
    assert_eq!(meter(&answer, Unit::Requests), (Some(40), Some(0), None));
    assert_eq!(answer.retry_after(secs(0)), Some(secs(2)));
    for malformed in ["32", "32/", "/40", "a/40", "-1/40"] {
        let answer = read(200, &[("X-Shopify-Shop-Api-Call-Limit", malformed)]);
        assert_eq!((answer.meter(Unit::Requests), answer.malformed), (None, 1), "{malformed}");
    }
}

/// What a server without a reset said is asked again after a second, by one call.
#[test]
fn a_bucket_without_a_reset_is_not_full_after_a_second() {
    let clock = ManualClock::auto_advance();
    let feedback = Feedback::new(RateLimiter::with_clock(InFlight::new(100), &clock));
    let call = |remaining: &'static str| {
        let mut call = feedback.blocking_acquire(1).expect("granted");
        let headers = [("x-ratelimit-limit", "40"), ("x-ratelimit-remaining", remaining)];
        call.blocking_observe(200u16, &headers);
    };
    call("39");
    clock.advance(secs(60));
    // Full again. That does not mean that it is a second later.
    call("39");
    let begin = clock.elapsed();
    call("0");
    let probe = feedback.blocking_acquire(1).expect("granted");
    assert_eq!(clock.elapsed() - begin, secs(1));
    let deadline = feedback.try_acquire_timeout(1, Duration::ZERO);
    assert!(block_on(deadline).is_err());
    drop(probe);
}

#[test]
fn a_date_counts_from_the_servers_own_clock() {
    let headers = [
        ("Date", "Sun, 06 Nov 1994 05:49:07 GMT"),
        ("Retry-After", "Sun, 06 Nov 1994 05:49:37 GMT"),
    ];
    // Whatever ours says.
    assert_eq!(read(503, &headers).retry_after(secs(2_000_000_000)), Some(secs(30)));
}

#[test]
fn github() {
    let headers = [
        ("x-ratelimit-limit", "60"),
        ("x-ratelimit-remaining", "56"),
        ("x-ratelimit-reset", "1372700873"),
        ("x-ratelimit-used", "4"),
        ("x-ratelimit-resource", "core"),
    ];
    let answer = read(200, &headers);
    let reset = When::At(secs(1_372_700_873));
    assert_eq!(meter(&answer, Unit::Requests), (Some(60), Some(56), Some(reset)));
    assert_eq!((answer.dialect, answer.bucket.as_deref()), (Some("github"), Some("core")));
    assert!(answer.is_accepted());
    // A missing permission is not a limit; both kinds of limit are.
    assert!(read(403, &headers).is_accepted());
    let exhausted = [("x-ratelimit-remaining", "0"), ("x-ratelimit-resource", "core")];
    assert!(read(403, &exhausted).is_refused());
    let secondary = [("x-github-request-id", "0000:1111"), ("retry-after", "60")];
    let answer = read(403, &secondary);
    assert!(answer.is_refused());
    assert_eq!(answer.retry_after(secs(0)), Some(secs(60)));
    assert_eq!(answer.least_wait, Some(secs(60)));
    // Of an unknown API it says nothing.
    assert!(read(403, &[("retry-after", "60")]).is_accepted());
}

#[test]
fn openai() {
    let answer = read(
        200,
        &[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ],
    );
    let after = |duration| Some(When::After(duration));
    assert_eq!(meter(&answer, Unit::Requests), (Some(60), Some(59), after(secs(1))));
    assert_eq!(meter(&answer, Unit::Tokens), (Some(150_000), Some(149_984), after(secs(360))));
    assert_eq!(answer.dialect, Some("openai"));
    for (text, millis) in [
        ("20ms", 20),
        ("7.66s", 7660),
        ("2m59.56s", 179_560),
        ("1h0m1s", 3_601_000),
        ("1d1s", 86_401_000),
        ("3000us", 3),
        ("5000000ns", 5),
    ] {
        let answer = read(200, &[("x-ratelimit-reset-requests", text)]);
        assert_eq!(
            meter(&answer, Unit::Requests).2,
            after(Duration::from_millis(millis)),
            "{text}"
        );
    }
    let answer = read(
        429,
        &[
            ("x-ratelimit-remaining-requests", "3"),
            ("retry-after-ms", "1250"),
            ("retry-after", "2"),
        ],
    );
    assert_eq!(answer.retry_after(secs(0)), Some(Duration::from_millis(1250)));
}

#[test]
fn anthropic() {
    let answer = read(
        429,
        &[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2025-01-01T00:01:00Z"),
            ("anthropic-ratelimit-tokens-limit", "48000"),
            ("anthropic-ratelimit-tokens-remaining", "0"),
            ("anthropic-ratelimit-tokens-reset", "2025-01-01T01:01:30+01:00"),
            ("anthropic-ratelimit-input-tokens-remaining", "40000"),
            ("anthropic-ratelimit-output-tokens-remaining", "8000"),
            ("retry-after", "12"),
        ],
    );
    let at = |seconds: u64| Some(When::At(secs(1_735_689_600 + seconds)));
    assert_eq!(meter(&answer, Unit::Requests), (Some(50), Some(49), at(60)));
    assert_eq!(meter(&answer, Unit::Tokens), (Some(48_000), Some(0), at(90)));
    assert_eq!(meter(&answer, Unit::InputTokens).1, Some(40_000));
    assert_eq!(meter(&answer, Unit::OutputTokens).1, Some(8_000));
    assert_eq!(answer.malformed, 0);
    for (text, seconds) in [
        ("2025-01-01T05:31:00+05:30", Some(60)),
        ("2024-12-31T14:30:01-09:30", Some(1)),
        ("2025-01-01T00:00:00+5:30", None),
        ("2025-01-01T00:00:00+05:3", None),
    ] {
        let remaining = ("anthropic-ratelimit-requests-remaining", "1");
        let answer = read(200, &[remaining, ("anthropic-ratelimit-requests-reset", text)]);
        assert_eq!(meter(&answer, Unit::Requests).2, seconds.and_then(at), "{text}");
    }
    // Overloaded: by its own headers, and for a limiter that knows whom it calls.
    let mark = ("anthropic-organization-id", "1");
    assert_eq!(read(529, &[mark]).verdict, Verdict::Unavailable);
    assert!(read(529, &[]).is_accepted());
    let none: [(&str, &str); 0] = [];
    assert!(Dialects::only(Dialect::ANTHROPIC).read(529u16, &none).is_refused());
}

#[test]
fn discord() {
    let answer = read(
        429,
        &[
            ("X-RateLimit-Limit", "5"),
            ("X-RateLimit-Remaining", "0"),
            ("X-RateLimit-Reset", "1470173023.123"),
            ("X-RateLimit-Reset-After", "64.57"),
            ("X-RateLimit-Bucket", "abcd1234"),
            ("X-RateLimit-Scope", "user"),
            ("Retry-After", "65"),
        ],
    );
    let reset = Some(When::After(Duration::from_millis(64_570)));
    assert_eq!(meter(&answer, Unit::Requests), (Some(5), Some(0), reset));
    assert_eq!(answer.bucket.as_deref(), Some("abcd1234"));
    let epoch = [("x-ratelimit-bucket", "a"), ("x-ratelimit-reset", "1470173023.123")];
    let reset = Some(When::At(Duration::from_millis(1_470_173_023_123)));
    assert_eq!(meter(&read(200, &epoch), Unit::Requests).2, reset);
}

#[test]
fn x() {
    let headers = [
        ("x-rate-limit-limit", "900"),
        ("x-rate-limit-remaining", "847"),
        ("x-rate-limit-reset", "1705420800"),
    ];
    let reset = Some(When::At(secs(1_705_420_800)));
    let answer = read(200, &headers);
    assert_eq!(meter(&answer, Unit::Requests), (Some(900), Some(847), reset));
    assert_eq!(answer.dialect, Some("x"));
}

#[test]
fn the_current_drafts_of_the_ietf() {
    let one =
        [("RateLimit-Policy", "\"default\";q=100;w=60"), ("RateLimit", "\"default\";r=50;t=30")];
    let answer = read(200, &one);
    let after = |seconds| Some(When::After(secs(seconds)));
    assert_eq!(meter(&answer, Unit::Requests), (Some(100), Some(50), after(30)));
    // The names are tokens in earlier versions. Of several the tightest counts.
    let several = [
        ("RateLimit-Policy", "permin;q=50;w=60, perhr;q=1000;w=3600"),
        ("RateLimit-Policy", "\"bytes\";q=65535;qu=\"content-bytes\";w=10;pk=:dHJpYWwxMjEzMjM=:"),
        ("RateLimit-Policy", "\"llm\";q=9000;qu=\"tokens\";w=60"),
        ("RateLimit", "permin;r=20;t=23, perhr;r=399;t=2402"),
        ("RateLimit", "\"bytes\";r=3;t=1, \"llm\";r=800"),
    ];
    let answer = read(200, &several);
    assert_eq!(meter(&answer, Unit::Requests), (Some(50), Some(20), after(23)));
    assert_eq!(meter(&answer, Unit::Tokens), (Some(9000), Some(800), None));
    // All of them hold for the same request: their names are no buckets.
    assert_eq!((answer.malformed, answer.bucket.as_deref()), (0, None));
    // Where nothing is left of two, the later reset counts.
    for empty in ["\"a\";r=0;t=5, \"b\";r=0;t=3600", "\"b\";r=0;t=3600, \"a\";r=0;t=5, \"c\";r=0"] {
        let answer = read(200, &[("RateLimit", empty)]);
        assert_eq!(meter(&answer, Unit::Requests), (None, Some(0), after(3600)), "{empty}");
    }
    // Version 7.
    let answer = read(200, &[("RateLimit", "limit=100, remaining=50, reset=30")]);
    assert_eq!(meter(&answer, Unit::Requests), (Some(100), Some(50), after(30)));
    // The units of version 11. Places in flight and bytes are no calls of a window.
    let units = [
        (
            "RateLimit-Policy",
            "\"a\";q=100;w=60;qu=\"requests\", \"b\";q=5;qu=\"concurrent-requests\", \
             \"c\";q=65535;w=60;qu=\"content-bytes\"",
        ),
        ("RateLimit", "\"b\";r=0, \"c\";r=0;t=9, \"a\";r=50;t=30"),
    ];
    let answer = read(200, &units);
    assert_eq!(meter(&answer, Unit::Requests), (Some(100), Some(50), after(30)));
    assert_eq!((answer.malformed, answer.bucket.as_deref()), (0, None));
    for malformed in [
        "\"a\"",
        "\"a\";r=-1",
        "\"a\";r=1.5",
        "\"a\";r=1;t=\"x\"",
        "(\"a\";r=1)",
        "\"a\";r=",
        "3;r=1",
        "remaining",
    ] {
        let answer = read(200, &[("RateLimit", malformed)]);
        assert_eq!((answer.meter(Unit::Requests), answer.malformed), (None, 1), "{malformed}");
    }
}

#[test]
fn the_older_drafts_and_what_others_made_of_them() {
    let answer = read(
        200,
        &[
            ("RateLimit-Limit", "100, 100;w=10"),
            ("RateLimit-Remaining", "99"),
            ("RateLimit-Reset", "50"),
        ],
    );
    let after = When::After(secs(50));
    assert_eq!(meter(&answer, Unit::Requests), (Some(100), Some(99), Some(after)));
    for (text, reset) in [
        ("30", When::After(secs(30))),
        ("1735689600", When::At(secs(1_735_689_600))),
        ("1735689600123", When::At(Duration::from_millis(1_735_689_600_123))),
        ("2025-01-01T00:00:00Z", When::At(secs(1_735_689_600))),
        ("Wed, 01 Jan 2025 00:00:00 GMT", When::At(secs(1_735_689_600))),
        ("1m30s", When::After(secs(90))),
    ] {
        let answer = read(200, &[("X-RateLimit-Remaining", "7"), ("X-RateLimit-Reset", text)]);
        assert_eq!(meter(&answer, Unit::Requests), (None, Some(7), Some(reset)), "{text}");
    }
}

#[test]
fn what_comes_from_a_cache_is_old() {
    let headers = [("age", "30"), ("x-ratelimit-remaining", "7")];
    assert_eq!(read(200, &headers).meter(Unit::Requests), None);
    let fresh = [("age", "0"), ("x-ratelimit-remaining", "7")];
    assert!(read(200, &fresh).meter(Unit::Requests).is_some());
}

#[test]
fn headers_of_the_http_crate_are_read_as_others() {
    let mut headers = http::HeaderMap::new();
    headers.append("ratelimit", http::HeaderValue::from_static("\"a\";r=50;t=30"));
    headers.append("ratelimit", http::HeaderValue::from_static("\"b\";r=5;t=3"));
    headers
        .insert("x-ratelimit-limit", http::HeaderValue::from_bytes(b"\xff\xfe").expect("opaque"));
    let answer = Dialects::default().read(http::StatusCode::OK, &headers);
    assert_eq!(meter(&answer, Unit::Requests).1, Some(5));
}

/// <https://docs.x.com/x-api/fundamentals/rate-limits>: fifteen minutes, and a day for an app and for a user.
#[test]
fn of_a_window_and_a_day_the_tighter_one_counts() {
    let headers = |window, app, user| {
        [
            ("Date", "Tue, 14 Nov 2023 22:13:20 GMT"),
            ("x-rate-limit-limit", "40"),
            ("x-rate-limit-remaining", window),
            ("x-rate-limit-reset", "1700000900"),
            ("x-app-limit-24hour-limit", "17"),
            ("x-app-limit-24hour-remaining", app),
            ("x-app-limit-24hour-reset", "1700080000"),
            ("x-user-limit-24hour-limit", "25"),
            ("x-user-limit-24hour-remaining", user),
            ("x-user-limit-24hour-reset", "1700070000"),
        ]
    };
    let left = |window, app, user| {
        let answer = read(200, &headers(window, app, user));
        assert_eq!((answer.dialect, answer.malformed), (Some("x"), 0));
        let (limit, remaining, reset) = meter(&answer, Unit::Requests);
        (limit.expect("sent"), remaining.expect("sent"), reset.expect("sent"))
    };
    let at = |second| When::At(secs(second));
    assert_eq!(left("3", "16", "20"), (40, 3, at(1_700_000_900)));
    assert_eq!(left("39", "16", "20"), (17, 16, at(1_700_080_000)));
    assert_eq!(left("39", "16", "2"), (25, 2, at(1_700_070_000)));
    // Of equals the one that lasts longest.
    assert_eq!(left("0", "0", "0"), (17, 0, at(1_700_080_000)));
    assert_eq!(read(200, &headers("3", "many", "some")).malformed, 2);
}

/// <https://linear.app/developers/rate-limiting>: milliseconds since the epoch. An API of `RapidAPI` sends seconds.
#[test]
fn linear_and_rapid_api() {
    let answer = read(
        200,
        &[
            ("X-RateLimit-Requests-Limit", "1500"),
            ("X-RateLimit-Requests-Remaining", "1499"),
            ("X-RateLimit-Requests-Reset", "1760000000000"),
        ],
    );
    let reset = When::At(secs(1_760_000_000));
    assert_eq!(meter(&answer, Unit::Requests), (Some(1500), Some(1499), Some(reset)));
    let answer = read(
        200,
        &[
            ("x-ratelimit-limit", "10"),
            ("x-ratelimit-remaining", "9"),
            ("x-ratelimit-requests-limit", "100"),
            ("x-ratelimit-requests-remaining", "7"),
            ("x-ratelimit-requests-reset", "43000"),
        ],
    );
    let reset = When::After(secs(43_000));
    assert_eq!(meter(&answer, Unit::Requests), (Some(100), Some(7), Some(reset)));
}

/// What cannot be read is ignored, counted, and hides nothing else.
#[test]
fn fields_that_are_malformed_are_counted_one_by_one() {
    for (fields, malformed) in [
        (&[("ratelimit", "\"a\";r=5;t=3"), ("ratelimit-policy", "\"a\";q=many")][..], 1),
        (&[("ratelimit", "\"a\";r=5;t=3"), ("ratelimit-policy", "\"b\";q=x, \"c\";q=y")], 2),
        (&[("ratelimit", "\"a\";r=5;t=3"), ("ratelimit-policy", "???")], 1),
        (&[("ratelimit", "\"a\";r=5;t=3"), ("ratelimit-policy", "\"a\";q=9;w=60")], 0),
    ] {
        let answer = read(200, fields);
        let requests = answer.meter(Unit::Requests).expect("the first field is read");
        assert_eq!((answer.malformed, requests.remaining), (malformed, Some(5)), "{fields:?}");
    }
    let dialect = Dialect::new("own", &[("acme-limit", Field::Limit(Unit::Requests))]);
    let acme = Dialects::only(dialect);
    assert_eq!(acme.read(429u16, &[("acme-limit", "many")]).malformed, 1);
    // The known ones are read as well.
    let all = Dialects::default().with(dialect);
    let answer = all.read(429u16, &[("acme-limit", "7"), ("x-ratelimit-remaining", "3")]);
    assert_eq!(answer.meter(Unit::Requests).expect("read").remaining, Some(3));
}
