//! The example that shows a limit before it is used: what it says is what the limit does.

use std::time::Duration;

use clap::Parser;

#[path = "../../examples/apps/simulate.rs"]
#[allow(dead_code, unreachable_pub)]
mod example;

use example::{Call, Options, report, simulate};

fn run(words: &[&str]) -> (Options, Vec<Call>) {
    let options = Options::try_parse_from([&["simulate"], words].concat()).expect("options");
    let calls = simulate(&options).expect("a run");
    (options, calls)
}

fn granted(calls: &[Call]) -> Vec<Duration> {
    calls.iter().filter_map(|call| call.granted).collect()
}

#[test]
fn a_bucket_grants_its_burst_and_then_its_rate() {
    let (options, calls) = run(&["60/min burst 20", "--demand", "5/s", "--for", "1min"]);
    assert_eq!(calls.len(), 300);
    let granted = granted(&calls);
    // Five a second come, and one more permit each second: 25 calls are granted as they come.
    assert!(calls[..24].iter().all(|call| call.granted == Some(call.came)));
    let waits = calls.iter().filter_map(|call| Some(call.granted? - call.came));
    assert!(waits.skip(25).is_sorted());
    assert_eq!(granted.len(), 79);
    let text = report(&options, &calls).expect("text");
    assert!(text.contains("300 calls came by 5/s, 79 were granted by 1/s burst 20"), "{text}");
    assert!(text.contains("221 wait at the end; the longest wait was 43.4s"), "{text}");
}

#[test]
fn places_come_back_when_calls_are_over() {
    let (_, calls) =
        run(&["3 in flight", "--demand", "10/s", "--for", "10s", "--call", "1s", "--delay", "2s"]);
    // A call takes its way at least. Three at a time, of two seconds each.
    let expected: Vec<_> =
        [0, 100, 200, 2_000, 2_100, 2_200, 4_000].map(Duration::from_millis).into();
    assert_eq!(granted(&calls)[..7], expected);
    assert_eq!(granted(&calls).len(), 15);
}

#[test]
fn a_server_refuses_what_its_own_limit_does_not_allow_and_a_smaller_limit_is_not_refused() {
    let refused = |limit: &str, delay: &str| {
        let words = [limit, "--demand", "5/s", "--for", "5min", "--delay", delay, "--against"];
        let (options, calls) = run(&[&words[..], &["90/min sliding window"]].concat());
        let text = report(&options, &calls).expect("text");
        let refused =
            calls.iter().filter(|call| matches!(call.at_server, Some((_, false)))).count();
        assert!(text.contains(&format!("refused {refused} of ")), "{text}");
        refused
    };
    // Its burst and its rate exceed 90 in a minute; ten a minute more, over five minutes.
    assert!((50..=90).contains(&refused("100/min burst 20", "0..80ms")));
    assert_eq!(refused("90/min sliding window", "50ms"), 0);
    // Ways of different length: what leaves a minute apart arrives in less. A margin is needed.
    assert!(refused("90/min sliding window", "0..80ms") > 0);
    assert_eq!(refused("90/61s sliding window", "0..80ms"), 0);
}

#[test]
fn a_wrong_option_says_what_is_expected() {
    let error = |words: &[&str]| {
        let words = [&["simulate"], words].concat();
        Options::try_parse_from(words).map(drop).expect_err("wrong").to_string()
    };
    let text = error(&["100/fortnight", "--demand", "5/s", "--for", "1min"]);
    assert!(text.contains("\"fortnight\": expected ns, us, ms, s, min, h or day"), "{text}");
    let text = error(&["100/min", "--demand", "5/s", "--for", "2days"]);
    assert!(text.contains("a time up to a day"), "{text}");
    let text = error(&["100/min", "--demand", "5/s", "--for", "1s", "--delay", "80ms..20ms"]);
    assert!(text.contains("the first time is longer"), "{text}");
    let options =
        Options::try_parse_from(["simulate", "1/s", "--demand", "1000000/s", "--for", "1h"]);
    let error = simulate(&options.expect("options")).expect_err("too many").to_string();
    assert_eq!(error, "3600000000 calls are too many: at most 1000000");
}
