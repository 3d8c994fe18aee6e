//! Each dialect by the examples of its documentation.

use std::time::Duration;

use tollgate::feedback::{Answer, Dialect, Dialects, Meter, Unit, Verdict, When};

fn read(status: u16, headers: &[(&str, &str)]) -> Answer {
    Dialects::default().read(status, headers)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
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
        let answer = read(429, &[("Retry-After", text)]);
        assert_eq!(answer.retry_after(now), wait.map(secs), "{text}");
        assert_eq!(answer.malformed, u32::from(wait.is_none()), "{text}");
        assert_eq!(answer.verdict, Verdict::Refused);
    }
    assert_eq!(
        read(429, &[("retry-after", "1.5")]).retry_after(now),
        Some(Duration::from_millis(1500))
    );
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
    assert_eq!(
        (answer.dialect.as_deref(), answer.bucket.as_deref()),
        (Some("github"), Some("core"))
    );
    assert!(answer.is_accepted());
    // A missing permission is not a limit; both kinds of limit are.
    assert!(read(403, &headers).is_accepted());
    let exhausted = [("x-ratelimit-remaining", "0"), ("x-ratelimit-used", "60")];
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
    assert_eq!(answer.dialect.as_deref(), Some("openai"));
    for (text, millis) in
        [("20ms", 20), ("7.66s", 7660), ("2m59.56s", 179_560), ("1h0m1s", 3_601_000)]
    {
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
    // Overloaded: by its own headers, and for a limiter that knows whom it calls.
    let mark = ("anthropic-organization-id", "1");
    assert_eq!(read(529, &[mark]).verdict, Verdict::Unavailable);
    assert!(read(529, &[]).is_accepted());
    let none: [(&str, &str); 0] = [];
    assert!(Dialects::only(Dialect::anthropic()).read(529u16, &none).is_refused());
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
    assert_eq!((answer.bucket.as_deref(), answer.is_global), (Some("abcd1234"), false));
    let global = [("X-RateLimit-Global", "true"), ("Retry-After", "65")];
    assert!(read(429, &global).is_global);
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
    assert_eq!(meter(&read(200, &headers), Unit::Requests), (Some(900), Some(847), reset));
}

#[test]
fn the_current_drafts_of_the_ietf() {
    let one =
        [("RateLimit-Policy", "\"default\";q=100;w=60"), ("RateLimit", "\"default\";r=50;t=30")];
    let answer = read(200, &one);
    let after = |seconds| Some(When::After(secs(seconds)));
    assert_eq!(meter(&answer, Unit::Requests), (Some(100), Some(50), after(30)));
    assert_eq!(answer.meter(Unit::Requests).expect("said").window, Some(secs(60)));
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
    assert_eq!((answer.malformed, answer.bucket.as_deref()), (0, Some("permin")));
    // Version 7.
    let answer = read(200, &[("RateLimit", "limit=100, remaining=50, reset=30")]);
    assert_eq!(meter(&answer, Unit::Requests), (Some(100), Some(50), after(30)));
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
