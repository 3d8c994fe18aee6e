//! What servers that others wrote were seen to send.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::feedback::{
    Answer, Dialect, Dialects, Feedback, Field, Servers, Unit, Verdict, When,
};
use tollgate::{Clock, InFlight, ManualClock, Rate, RateLimiter, TokenBucket};

type Fields<'a> = &'a [(&'a str, &'a str)];

const NONE: [(&str, &str); 0] = [];

fn read(status: u16, headers: Fields) -> Answer {
    Dialects::default().read(status, headers)
}

fn after(seconds: u64) -> Option<When> {
    Some(When::After(Duration::from_secs(seconds)))
}

/// The limit, what remains, and the reset.
fn of(answer: &Answer, unit: Unit) -> (Option<u64>, Option<u64>, Option<When>) {
    let meter = answer.meter(unit).unwrap_or_default();
    (meter.limit, meter.remaining, meter.reset)
}

fn requests(headers: Fields) -> (Option<u64>, Option<u64>, Option<When>) {
    let answer = read(200, headers);
    assert_eq!(answer.malformed, 0, "{headers:?}");
    of(&answer, Unit::Requests)
}

/// A limiter that holds nothing back.
fn begin(clock: &ManualClock) -> RateLimiter<TokenBucket> {
    RateLimiter::with_clock(TokenBucket::new(Rate::per_second(1e6), 1_000_000), clock)
}

#[test]
fn names_of_quotas_stand_before_or_behind_the_word() {
    // NestJS, with two throttlers.
    let nest = [
        ("X-RateLimit-Limit-short", "3"),
        ("X-RateLimit-Remaining-short", "2"),
        ("X-RateLimit-Reset-short", "1"),
        ("X-RateLimit-Limit-long", "20"),
        ("X-RateLimit-Remaining-long", "1"),
        ("X-RateLimit-Reset-long", "10"),
    ];
    assert_eq!(requests(&nest), (Some(20), Some(1), after(10)));
    assert_eq!(requests(&nest[..3]), (Some(3), Some(2), after(1)));
    // Its refusals say nothing else.
    let refused = read(429, &[("Retry-After-short", "10")]);
    assert_eq!((refused.wait, refused.malformed), (after(10), 0));
    let both = read(429, &[("Retry-After-short", "10"), ("retry-after-long", "30")]);
    assert_eq!(both.wait, after(30));
    for named in ["X-RateLimit-Retry-After", "llm_provider-retry-after"] {
        assert_eq!(
            read(429, &[(named, "9")]).wait,
            read(429, &[("Retry-After", "9")]).wait,
            "{named}"
        );
    }
    let milliseconds = [("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset-Ms", "2000")];
    assert_eq!(requests(&milliseconds), (None, Some(0), after(2)));
    let plain = read(429, &[("Retry-After-short", "10"), ("Retry-After", "7")]);
    assert_eq!(plain.wait, after(7));

    let hapi = [
        ("X-RateLimit-UserLimit", "300"),
        ("X-RateLimit-UserRemaining", "299"),
        ("X-RateLimit-UserReset", "1795851351006"),
        ("X-RateLimit-PathLimit", "50"),
        ("X-RateLimit-PathRemaining", "49"),
        ("X-RateLimit-PathReset", "1795851352006"),
        ("X-RateLimit-UserPathLimit", "20"),
        ("X-RateLimit-UserPathRemaining", "-1"),
        ("X-RateLimit-UserPathReset", "1795851353006"),
    ];
    let at = |millis| Some(When::At(Duration::from_millis(millis)));
    assert_eq!(requests(&hapi), (Some(20), Some(0), at(1_795_851_353_006)));
    assert_eq!(requests(&hapi[..6]), (Some(50), Some(49), at(1_795_851_352_006)));
    assert_eq!(requests(&hapi[..3]), (Some(300), Some(299), at(1_795_851_351_006)));

    // The README of koa-ratelimit.
    let koa =
        [("Rate-Limit-Total", "20"), ("Rate-Limit-Remaining", "9"), ("Rate-Limit-Reset", "5")];
    assert_eq!(requests(&koa), (Some(20), Some(9), after(5)));

    // Tokens of a minute and of a day.
    let tokens = [
        ("x-ratelimit-limit-tokens-minute", "60000"),
        ("x-ratelimit-remaining-tokens-minute", "59000"),
        ("x-ratelimit-reset-tokens-minute", "11.4"),
        ("x-ratelimit-limit-tokens-day", "1000000"),
        ("x-ratelimit-remaining-tokens-day", "400"),
        ("x-ratelimit-reset-tokens-day", "33011"),
        ("x-ratelimit-remaining-bytes", "0"),
    ];
    let answer = read(200, &tokens);
    assert_eq!(of(&answer, Unit::Tokens), (Some(1_000_000), Some(400), after(33_011)));
    assert_eq!((answer.meter(Unit::Requests), answer.malformed), (None, 0));

    // No words of a quota: `near` and `ed` do not stand apart.
    let others = [("X-RateLimit-NearLimit", "true"), ("X-RateLimit-Limited", "no")];
    assert_eq!(requests(&others), (None, None, None));
}

#[test]
fn a_quota_of_zero_that_has_taken_a_call_is_none() {
    for fields in [
        &[("RateLimit-Limit", "0"), ("RateLimit-Remaining", "0"), ("RateLimit-Reset", "10")][..],
        &[
            ("RateLimit", "\"0-in-10sec\"; r=0; t=10"),
            ("RateLimit-Policy", "\"0-in-10sec\"; q=0; w=10"),
        ],
        &[("X-RateLimit-Limit", "-1"), ("X-RateLimit-Remaining", "-1")],
    ] {
        assert_eq!(requests(fields), (None, None, None), "{fields:?}");
        assert!(read(404, fields).meter(Unit::Requests).is_none(), "{fields:?}");
        assert_eq!(of(&read(429, fields), Unit::Requests).1, Some(0), "{fields:?}");
    }
    // It does not hide another one.
    let fields = [
        ("RateLimit-Limit", "0"),
        ("RateLimit-Remaining", "0"),
        ("X-RateLimit-Limit", "9"),
        ("X-RateLimit-Remaining", "3"),
    ];
    assert_eq!(requests(&fields), (Some(9), Some(3), None));
    // express-slow-down, which refuses nothing: as fast as without fields.
    let clock = ManualClock::auto_advance();
    let feedback = Feedback::new(begin(&clock));
    let fields = [
        ("RateLimit-Limit", "0"),
        ("RateLimit-Remaining", "0"),
        ("RateLimit-Reset", "10"),
        ("Retry-After", "10"),
    ];
    for _ in 0..100 {
        feedback.blocking_acquire(1).expect("granted").blocking_observe(200u16, &fields);
    }
    assert_eq!(clock.elapsed(), Duration::ZERO);
}

#[test]
fn values_may_have_parameters_signs_and_decimals() {
    // Docker Hub.
    let docker = [("RateLimit-Limit", "100;w=21600"), ("RateLimit-Remaining", "76;w=21600")];
    assert_eq!(requests(&docker), (Some(100), Some(76), None));
    assert_eq!(
        requests(&[docker[1], ("RateLimit-Reset", "60;w=21600")]),
        (None, Some(76), after(60))
    );
    // Of a dialect of one's own.
    let acme =
        Dialects::only(Dialect::new("own", &[("acme-left", Field::Remaining(Unit::Requests))]));
    let answer = acme.read(200u16, &[("acme-left", "76;w=21600")]);
    assert_eq!((of(&answer, Unit::Requests).1, answer.malformed), (Some(76), 0));
    for none in ["-1", "-7", "-0.5", "0"] {
        let fields = [("X-RateLimit-Remaining", none), ("X-RateLimit-Reset", "30")];
        assert_eq!(requests(&fields), (None, Some(0), after(30)), "{none}");
    }
    for malformed in ["-", "--1", "1-", ";w=5", "-;w=5", "x;w=5"] {
        let answer = read(200, &[("X-RateLimit-Remaining", malformed)]);
        assert_eq!((answer.meter(Unit::Requests), answer.malformed), (None, 1), "{malformed}");
    }
}

/// As many calls are refused as if it said `0`: one an answer that has nothing left.
#[test]
fn a_negative_number_holds_calls_back_as_zero_does() {
    let waits = |remaining| {
        let clock = ManualClock::auto_advance();
        let feedback = Feedback::new(begin(&clock));
        let fields = [("X-RateLimit-Remaining", remaining), ("X-RateLimit-Reset", "30")];
        feedback.blocking_acquire(1).expect("granted").blocking_observe(429u16, &fields);
        drop(feedback.blocking_acquire(1).expect("granted"));
        clock.elapsed().as_secs()
    };
    assert_eq!([waits("-1"), waits("0")], [30, 30]);
}

#[test]
fn of_two_limits_the_tighter_counts_and_each_field_by_itself() {
    // tollbooth beside a gateway.
    let tollbooth = ("X-Rate-Limit-Limit", "20.00");
    let gateway =
        [("RateLimit-Limit", "20"), ("RateLimit-Remaining", "0"), ("RateLimit-Reset", "1")];
    let all = [tollbooth, gateway[0], gateway[1], gateway[2]];
    assert_eq!(requests(&all), (Some(20), Some(0), after(1)));
    assert_eq!(requests(&[tollbooth, gateway[1], gateway[2]]), (Some(20), Some(0), after(1)));
    let app =
        [("X-RateLimit-Limit", "100"), ("X-RateLimit-Remaining", "50"), ("X-RateLimit-Reset", "9")];
    let both = [app[0], app[1], app[2], gateway[0], gateway[1], gateway[2]];
    assert_eq!(requests(&both), (Some(20), Some(0), after(1)));
    // And if each has its dialect's name before the other's.
    let app = app.map(|(name, value)| (name.replace("X-RateLimit", "X-Rate-Limit"), value));
    let both: Vec<_> = app.iter().map(|(name, value)| (&**name, *value)).chain(gateway).collect();
    assert_eq!(requests(&both), (Some(20), Some(0), after(1)));
    // One quota in two dialects: the time from now is the nearer one.
    let date = ("Date", "Mon, 23 Nov 2026 12:00:00 GMT");
    let legacy = [("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "1795435211")];
    let draft = [("RateLimit-Remaining", "0"), ("RateLimit-Reset", "10")];
    for at in [&[date][..], &[]] {
        let fields: Vec<_> = [&legacy[..], &draft, at].concat();
        assert_eq!(requests(&fields), (None, Some(0), after(10)), "{at:?}");
    }
}

#[test]
fn lists_of_limiters_in_a_chain_are_read_in_all_fields() {
    let chain = |remaining, reset| {
        requests(&[
            ("X-RateLimit-Limit", "20, 1000"),
            ("X-RateLimit-Remaining", remaining),
            ("X-RateLimit-Reset", reset),
        ])
    };
    assert_eq!(chain("0, 950", "30, 3000"), (Some(20), Some(0), after(30)));
    assert_eq!(chain("3, 0", "30, 3000"), (Some(1000), Some(0), after(3000)));
    // Of equals the one that lasts longer.
    assert_eq!(chain("0, 0", "30, 3000"), (Some(1000), Some(0), after(3000)));
    // Lists that do not match: the later reset.
    assert_eq!(chain("5", "30, 3000"), (Some(20), Some(5), after(3000)));
    assert_eq!(chain("5, 7", "30"), (Some(20), Some(5), after(30)));
    let dates = "Mon, 23 Nov 2026 12:00:30 GMT, Mon, 23 Nov 2026 12:50:00 GMT";
    let at = Some(When::At(Duration::from_secs(1_795_435_230)));
    assert_eq!(chain("0, 950", dates), (Some(20), Some(0), at));
    let answer = read(200, &[("X-RateLimit-Remaining", "0, many"), ("X-RateLimit-Reset", "30,")]);
    assert_eq!((answer.meter(Unit::Requests), answer.malformed), (None, 2));
}

#[test]
fn times_are_read_where_their_meaning_is_plain() {
    let at = |nanos| Some(When::At(Duration::from_nanos(nanos)));
    for (text, time) in [
        // .NET.
        ("00:00:05", after(5)),
        ("01:02:03", after(3723)),
        ("1.02:03:04", after(93_784)),
        ("00:00:00.2500000", Some(When::After(Duration::from_millis(250)))),
        ("00:60:00", None),
        ("00:00:60", None),
        ("00:00", None),
        ("00:00:", None),
        ("-00:00:05", None),
        ("a:00:05", None),
        // The zones that are GMT.
        ("Mon, 23 Nov 2026 12:00:30 +0000", at(1_795_435_230_000_000_000)),
        ("Mon, 23 Nov 2026 12:00:30 -0000", at(1_795_435_230_000_000_000)),
        ("Mon, 23 Nov 2026 12:00:30 UTC", at(1_795_435_230_000_000_000)),
        ("Mon, 23 Nov 2026 12:00:30 +0100", None),
        // Epochs by their size.
        ("1795435230", at(1_795_435_230_000_000_000)),
        ("1795435230123", at(1_795_435_230_123_000_000)),
        ("1795435230123456", at(1_795_435_230_123_456_000)),
        ("1795435230123456789", at(1_795_435_230_123_456_789)),
        // ISO 8601 without a zone.
        ("2026-11-23T12:00:30", at(1_795_435_230_000_000_000)),
        ("2026-11-23T12:00:30.5", at(1_795_435_230_500_000_000)),
        ("2026-11-23 12:00:30", at(1_795_435_230_000_000_000)),
        ("2026-11-23T12:00:30+01:00", at(1_795_431_630_000_000_000)),
        ("2026-11-23T12:00", None),
    ] {
        assert_eq!(read(429, &[("Retry-After", text)]).wait, time, "{text}");
    }
    let reset = &[("reset-after", Field::Reset(Unit::Requests))];
    let dialect = Dialect::new("net", reset);
    let answer = Dialects::only(dialect).read(200u16, &[("reset-after", "00:00:05")]);
    assert_eq!(of(&answer, Unit::Requests).2, after(5));
    let date = ("Date", "Mon, 23 Nov 2026 12:00:00 GMT");
    let answer = read(429, &[date, ("Retry-After", "Mon, 23 Nov 2026 12:00:30 +0000")]);
    assert_eq!(answer.retry_after(Duration::ZERO), Some(Duration::from_secs(30)));
}

#[test]
fn policies_of_the_ietf_are_no_buckets_and_partitions_are() {
    let bucket = |limits, policies| {
        let answer = read(200, &[("RateLimit", limits), ("RateLimit-Policy", policies)]);
        assert_eq!(answer.malformed, 0);
        answer.bucket
    };
    assert_eq!(bucket("\"a\";r=1;t=1", "\"a\";q=5;w=1, \"b\";q=20;w=60"), None);
    let parted = "\"a\";q=5;w=1;pk=:MTJjYQ==:, \"b\";q=20;w=60;pk=:MTJjYQ==:";
    assert_eq!(bucket("\"a\";r=1;t=1", parted).as_deref(), Some("MTJjYQ=="));
    // Whichever is the closest.
    assert_eq!(bucket("\"b\";r=0;t=9", parted).as_deref(), Some("MTJjYQ=="));
    assert_eq!(bucket("\"a\";r=1;t=1;pk=:MTJjYQ==:", "\"a\";q=5").as_deref(), Some("MTJjYQ=="));
    assert_eq!(bucket("\"a\";r=1;t=1;pk=:/w==:", "\"a\";q=5").as_deref(), Some("/w=="));
}

/// Five a second and twenty a minute, which sends the closer one only.
struct Closest {
    /// The length of each window in milliseconds, its limit, its begin, and how much was used of it.
    windows: [(u64, u32, u64, u32); 2],
    accepted: u32,
    refused: u32,
}

impl Closest {
    fn answer(&mut self, now: u64) -> (u16, [(&'static str, String); 1]) {
        for (length, _, begin, used) in &mut self.windows {
            if now >= *begin + *length {
                (*begin, *used) = (now, 0);
            }
        }
        let is_full = self.windows.iter().any(|(_, limit, _, used)| used == limit);
        if is_full {
            self.refused += 1;
        } else {
            self.accepted += 1;
            self.windows.iter_mut().for_each(|(.., used)| *used += 1);
        }
        let closest = self
            .windows
            .iter()
            .min_by_key(|(length, limit, _, used)| (limit - used, std::cmp::Reverse(*length)));
        let (length, limit, begin, used) = closest.expect("two");
        let reset = (begin + length - now).div_ceil(1000);
        let text = format!("\"{limit}-in-{length}ms\";r={};t={reset}", limit - used);
        (if is_full { 429 } else { 200 }, [("ratelimit", text)])
    }
}

/// Sixteen tasks in a closed loop. A caller that waits must not go by what another policy has said.
#[tokio::test(start_paused = true)]
async fn a_server_that_sends_its_closest_policy_only_refuses_nothing() {
    let limiter =
        RateLimiter::with_clock(TokenBucket::new(Rate::per_second(200.0), 1), Clock::tokio());
    let servers = Servers::new(limiter);
    let windows = [(1_000, 5, 0, 0), (60_000, 20, 0, 0)];
    let server = Arc::new(Mutex::new(Closest { windows, accepted: 0, refused: 0 }));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (servers, server) = (servers.clone(), Arc::clone(&server));
        tasks.spawn(async move {
            loop {
                let mut call = servers.at("a.example", "GET /").acquire(1).await.expect("granted");
                sleep(Duration::from_millis(1)).await;
                let now = u64::try_from(start.elapsed().as_millis()).expect("short");
                let (status, headers) = server.lock().expect("no panic").answer(now);
                sleep(Duration::from_millis(1)).await;
                call.observe(status, &headers).await;
            }
        });
    }
    sleep(Duration::from_secs(119)).await;
    tasks.abort_all();
    let server = server.lock().expect("no panic");
    assert_eq!((server.accepted, server.refused), (40, 0));
}

#[test]
fn fields_of_the_ietf_may_have_other_names_and_the_parameters_of_its_next_draft() {
    let fields = &[("beta-ratelimit", Field::Structured("beta-ratelimit-policy"))];
    let beta = Dialects::default().with(Dialect::new("beta", fields));
    let fields = [
        ("Beta-RateLimit", "\"default\";r=50;t=30"),
        ("Beta-RateLimit-Policy", "\"default\";q=100;w=60"),
    ];
    let answer = beta.read(200u16, &fields);
    assert_eq!(of(&answer, Unit::Requests), (Some(100), Some(50), after(30)));
    assert_eq!(answer.dialect, Some("beta"));
    // What has the usual names is read beside it, and the tightest counts.
    let answer = beta.read(200u16, &[fields[0], ("RateLimit", "\"default\";r=3;t=9")]);
    assert_eq!(of(&answer, Unit::Requests), (None, Some(3), after(9)));

    let policy = ("RateLimit-Policy", "\"burst\";q=100;w=60");
    for limits in ["\"burst\";a=80;w=45", "\"burst\";a=80;w=45;c=1", "\"burst\";r=80;t=45;c=1"] {
        let fields = [policy, ("RateLimit", limits)];
        assert_eq!(requests(&fields), (Some(100), Some(80), after(45)), "{limits}");
    }
    assert_eq!(read(200, &[("RateLimit", "\"burst\";a=x")]).malformed, 1);
}

/// A first answer that names the bucket holds for calls that began before it: sixteen tasks had six refused by express-rate-limit's
/// draft 8.
#[test]
fn calls_that_began_before_a_server_named_its_first_bucket_are_of_that_bucket() {
    let clock = ManualClock::new();
    let servers = Servers::new(RateLimiter::with_clock(InFlight::new(100), &clock));
    let (first, waits) = (servers.at("a.example", "GET /"), servers.at("a.example", "GET /"));
    let mut call = first.try_acquire(1).blocking_wait().expect("free");
    let fields = [
        ("RateLimit-Policy", "\"20-in-10sec\";q=20;w=10;pk=:MTJj:"),
        ("RateLimit", "\"20-in-10sec\";r=0;t=10"),
    ];
    call.blocking_observe(200u16, &fields);
    assert!(waits.try_acquire(1).blocking_wait().is_err(), "nothing remains");
}

#[test]
fn each_channel_of_discord_has_a_bucket_for_itself() {
    let clock = ManualClock::new();
    let servers = Servers::new(RateLimiter::with_clock(InFlight::new(100), &clock));
    let at = |channel: u32| {
        servers.at("discord.com", &format!("POST /api/v10/channels/{channel}/messages"))
    };
    let answer = |remaining: &'static str| {
        [
            ("X-RateLimit-Bucket", "80c17d2f203122d936070c88c8d10f33"),
            ("X-RateLimit-Limit", "5"),
            ("X-RateLimit-Remaining", remaining),
            ("X-RateLimit-Reset-After", "4.5"),
        ]
    };
    let call = |channel| at(channel).try_acquire(1).blocking_wait();
    call(111).expect("free").blocking_observe(200u16, &answer("0"));
    let wait = call(111).expect_err("used up").retry_after();
    assert_eq!(wait, Some(Duration::from_millis(4500)));
    // Before and after its first answer.
    for channel in 222..252 {
        call(channel).expect("free").blocking_observe(200u16, &answer("4"));
        assert_eq!(at(channel).server_state().meters[0].1.remaining, Some(4));
    }
    call(111).expect_err("used up");
    let learned = servers.learned();
    let known = |name: &str| learned.iter().any(|learned| learned.bucket.ends_with(name));
    assert!(known("10f33 channels/111") && known("10f33 channels/251"));
    // A guild and a webhook as well; a user shares the bucket with the others.
    for path in ["/api/guilds/1/members", "/api/webhooks/1/token"] {
        let at = |id: &str| servers.at("discord.com", &path.replace('1', id));
        at("1")
            .try_acquire(1)
            .blocking_wait()
            .expect("free")
            .blocking_observe(200u16, &answer("0"));
        at("1").try_acquire(1).blocking_wait().expect_err("used up");
        at("2")
            .try_acquire(1)
            .blocking_wait()
            .expect("free")
            .blocking_observe(200u16, &answer("4"));
    }
    let users = |id: u32| servers.at("discord.com", &format!("/api/users/{id}"));
    users(1).try_acquire(1).blocking_wait().expect("free").blocking_observe(200u16, &answer("0"));
    users(2).try_acquire(1).blocking_wait().expect_err("the same");
    // They are forgotten when there are many.
    clock.advance(Duration::from_secs(600));
    for channel in 0..5_000 {
        call(channel).expect("free").blocking_observe(200u16, &answer("4"));
        clock.advance(Duration::from_secs(5));
    }
    assert!(servers.learned().len() < 1_100, "{}", servers.learned().len());
}

#[test]
fn the_quota_that_gitlab_names_is_a_bucket() {
    let clock = ManualClock::new();
    let servers = Servers::new(RateLimiter::with_clock(InFlight::new(10), &clock));
    let call = |path| servers.at("gitlab.example", path).try_acquire(1).blocking_wait();
    let answer = |name, remaining| {
        [
            ("RateLimit-Limit", "10"),
            ("RateLimit-Name", name),
            ("RateLimit-Observed", "1"),
            ("RateLimit-Remaining", remaining),
            ("RateLimit-Reset", "46"),
            ("RateLimit-ResetTime", "Mon, 23 Nov 2026 12:00:46 GMT"),
        ]
    };
    let user = answer("throttle_authenticated_api", "9");
    let files = answer("throttle_authenticated_files_api", "0");
    call("GET /api/v4/user").expect("free").blocking_observe(200u16, &user);
    let path = "GET /api/v4/projects/7/repository/files/README";
    let said = call(path).expect("free").blocking_observe(200u16, &files);
    assert_eq!(said.bucket.as_deref(), Some("throttle_authenticated_files_api"));
    assert_eq!(said.malformed, 0);
    call(path).expect_err("used up");
    assert!(call("GET /api/v4/user").is_ok());
}

/// What a Feedback hears of a 429 with this body.
fn told(headers: Fields, body: &str) -> Answer {
    let feedback = Feedback::new(RateLimiter::with_clock(InFlight::new(1), ManualClock::new()));
    block_on(feedback.sent(1).observe_body(429u16, headers, body.as_bytes()))
}

#[test]
fn the_delay_in_the_body_of_a_refusal_by_google_is_heard() {
    let body = |details: &str| {
        let error = r#""code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED""#;
        format!("{{\"error\": {{{error}, \"details\": [{details}]}}}}")
    };
    let info = |delay: &str| {
        format!(r#"{{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": {delay}}}"#)
    };
    let seconds =
        |answer: &Answer| answer.retry_after(Duration::ZERO).map(|wait| wait.as_secs_f64());
    let answer = told(&NONE, &body(&info("\"28.1s\"")));
    assert_eq!((seconds(&answer), answer.malformed), (Some(28.1), 0));
    // Without spaces, of several the longest, and quoted by a gateway.
    let two = body(&[info("\"3s\""), info("\"41s\"")].join(",")).replace(' ', "");
    assert_eq!(seconds(&told(&NONE, &two)), Some(41.0));
    let quoted = format!("{{\"message\": {:?}}}", body(&info("\"7s\"")));
    assert_eq!(seconds(&told(&NONE, &quoted)), Some(7.0));
    // A field of HTTP comes first.
    assert_eq!(seconds(&told(&[("retry-after", "5")], &body(&info("\"28.1s\"")))), Some(5.0));
    // It is no wait of seconds for what is used up for a day.
    let quota = |id: &str| {
        let kind = r#""@type": "type.googleapis.com/google.rpc.QuotaFailure""#;
        let failure = format!(r#"{{{kind}, "violations": [{{"quotaId": "{id}"}}]}}"#);
        told(&NONE, &body(&[failure, info("\"36s\"")].join(", ")))
    };
    let day = quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier");
    assert_eq!((seconds(&day), day.least_wait), (None, Some(Duration::from_secs(60))));
    let minute = quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier");
    assert_eq!((seconds(&minute), minute.least_wait), (Some(36.0), None));
    // What is no time is ignored and counted; what is not Google's, and what is no refusal, is not looked at.
    for malformed in ["\"soon\"", "\"-1s\"", "7", "\"", "", "{\"seconds\": 7}"] {
        let answer = told(&NONE, &body(&info(malformed)));
        let is_plain = malformed == "7";
        assert_eq!(answer.wait.is_some(), is_plain, "{malformed}");
        assert_eq!(answer.malformed, u32::from(!is_plain), "{malformed}");
    }
    assert_eq!(told(&NONE, r#"{"retryDelay": "28s"}"#).wait, None);
    let feedback = Feedback::new(RateLimiter::with_clock(InFlight::new(1), ManualClock::new()));
    let accepted = feedback.sent(1).observe_body(200u16, &NONE, body(&info("\"9s\"")).as_bytes());
    assert_eq!(block_on(accepted).wait, None);
    // Up to 64 KiB are read, and a time without end is cut to the longest wait.
    let late = body(&[format!("{:?}", "x".repeat(1 << 16)), info("\"9s\"")].join(","));
    assert_eq!(told(&NONE, &late).wait, None);
    let clock = ManualClock::auto_advance();
    let feedback = Feedback::new(begin(&clock));
    let forever = body(&info("\"99999999999999999999s\""));
    block_on(feedback.sent(1).observe_body(429u16, &NONE, forever.as_bytes()));
    drop(feedback.blocking_acquire(1).expect("granted"));
    assert_eq!(clock.elapsed().as_secs(), 3600);
}

/// `HAProxy`'s `deny`, `mod_evasive` and django-ratelimit send a bare one; fastify's ban has `Retry-After`.
#[test]
fn one_line_makes_a_403_a_refusal() {
    let calls = |dialects, headers: Fields| {
        let clock = ManualClock::auto_advance();
        let feedback = Feedback::builder(begin(&clock)).dialects(dialects).seed(7).build();
        let mut calls = 0;
        while clock.elapsed() < Duration::from_secs(60) && calls < 10_000 {
            feedback.blocking_acquire(1).expect("granted").blocking_observe(403u16, headers);
            clock.advance(Duration::from_millis(1));
            calls += 1;
        }
        calls
    };
    let always =
        || Dialects::default().with(Dialect { refused: &[403], ..Dialect::new("own", &[]) });
    let ban = Dialect { refused_if_limited: &[403], ..Dialect::new("own", &[]) };
    let limited = || Dialects::default().with(ban);
    let ban = [("retry-after", "10"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "10")];
    assert_eq!(calls(Dialects::default(), &NONE), 10_000);
    assert!(calls(always(), &NONE) < 20, "{}", calls(always(), &NONE));
    assert!(calls(limited(), &ban) <= 7, "{}", calls(limited(), &ban));
    assert_eq!(calls(limited(), &NONE), 10_000, "another 403");
    // The known dialects are read all the same.
    let answer = always().read(403u16, &ban);
    assert_eq!((answer.wait, of(&answer, Unit::Requests).1), (after(10), Some(0)));
    assert!(always().read(200u16, &NONE).is_accepted());
    // nginx's default status for a limit, which else counts as a failure.
    let nginx = Dialects::default().with(Dialect { refused: &[503], ..Dialect::new("own", &[]) });
    assert_eq!(nginx.read(503u16, &NONE).verdict, Verdict::Refused);
}
