//! The scenarios, each with what was measured in it. Rates are in calls a second, times in seconds, shares from 0 to 1.

use crate::clients::{Kind, Knows};
use crate::random::Random;
use crate::server::{Counts, Fields, Quota, Request, Rule, Server, Trouble};
use crate::simulation::{Network, Outcome, Simulation};

/// A server that limits nothing.
const OPEN: Rule = Rule::Bucket(1e9, 1e9);
const LIMIT: Knows = Knows::Burst(100.0, 10);

fn any(_: &mut Random) -> Request {
    Request::default()
}

/// Twenty workers behind a limit of 100/s for a minute; one call in five fails by itself, or all of one route do.
pub(crate) fn some_fail(kind: Kind, is_route: bool, seed: u64) -> Outcome {
    let trouble = if is_route {
        Trouble { broken: Some("broken"), ..Trouble::default() }
    } else {
        Trouble { bad: 0.2, ..Trouble::default() }
    };
    let server = Server::new(OPEN, seed).trouble(trouble);
    let network = Network { delay: 0.015, retries_failed: false, ..Network::default() };
    let mut run = Simulation::new(kind, server, seed).network(network);
    let client = run.client(LIMIT);
    run.workers(client, 20, |random| Request {
        route: if random.share() < 0.2 { "broken" } else { "sound" },
        ..Request::default()
    });
    run.run_until(60.0)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    /// From the end of the outage to the first good call.
    pub(crate) first_good: f64,
    pub(crate) spent: f64,
    /// From the first good call to a second with nine tenths of the limit.
    pub(crate) full_after: f64,
}

/// Twenty workers behind a limit of 100/s; all calls fail for forty minutes, `from` a time on.
pub(crate) fn outage(kind: Kind, from: f64, seed: u64) -> Outage {
    let to = from + 2400.0;
    let trouble = Trouble { outage: Some((from, to)), ..Trouble::default() };
    let server = Server::new(OPEN, seed).trouble(trouble);
    let network = Network { delay: 0.015, ..Network::default() };
    let mut run = Simulation::new(kind, server, seed).network(network);
    let client = run.client(LIMIT);
    run.workers(client, 20, any);
    let outcome = run.run_until(to + 120.0);
    let taken = &outcome.servers[0].taken;
    let first = taken.iter().map(|(at, _)| *at).find(|at| *at >= to).unwrap_or(f64::INFINITY);
    let seconds = (0..100u32).map(f64::from);
    let full = { seconds }.find(|t| outcome.taken(first + t, first + t + 1.0) >= 90.0);
    Outage {
        first_good: first - to,
        spent: outcome.servers[0].failed as f64,
        full_after: full.unwrap_or(f64::INFINITY),
    }
}

/// When the calls of independent clients come to them: `calls` in all, `load` times `rate` of them a second.
fn arrivals(clients: usize, load: f64, rate: f64, calls: usize, seed: u64) -> Vec<Vec<f64>> {
    let each = clients as f64 / (rate * load);
    let of_one = |client: usize| {
        let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(client as u64));
        let mut at = 0.0;
        let next = || {
            at += random.gap() * each;
            at
        };
        std::iter::repeat_with(next).take(calls / clients).collect()
    };
    (0..clients).map(of_one).collect()
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// The most arrivals in a second: in the first minute of the outage, later in it, and after it.
    pub(crate) most: [f64; 3],
    /// Of the quota, in the two minutes after.
    pub(crate) used: f64,
}

/// Independent clients of a server of 100/s at load 0.9, which is down for ten minutes.
pub(crate) fn crowd(kind: Kind, knows: Knows, clients: usize, seed: u64) -> Crowd {
    let trouble = Trouble { outage: Some((300.0, 900.0)), ..Trouble::default() };
    let server = Server::new(Rule::Bucket(100.0, 100.0), seed).trouble(trouble);
    let mut run = Simulation::new(kind, server, seed);
    for times in arrivals(clients, 0.9, 100.0, 110_000, seed) {
        let client = run.client(knows);
        run.arrivals(client, times, Request::default());
    }
    let outcome = run.run_until(1200.0);
    Crowd {
        most: [(300.0, 360.0), (360.0, 900.0), (900.0, 1200.0)].map(|(a, b)| outcome.most(a, b)),
        used: outcome.taken(910.0, 1030.0) / 12_000.0,
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    pub(crate) refused: f64,
    pub(crate) mean: f64,
    pub(crate) p99: f64,
    /// The last good answer, over that of the same calls asked by an oracle when there is room.
    pub(crate) last: f64,
    pub(crate) most: f64,
}

/// Independent clients of one server, 3,000 calls in all.
pub(crate) fn strangers(
    kind: Kind,
    (rule, fields): (Rule, Fields),
    knows: Knows,
    clients: usize,
    load: f64,
    seed: u64,
) -> Shared {
    let plan = arrivals(clients, load, rule.rate(), 3000, seed);
    let best = ideal(rule, &plan) + 2.0 * Network::default().delay;
    let server = Server::new(rule, seed).fields(fields);
    let mut run = Simulation::new(kind, server, seed);
    for times in plan {
        let client = run.client(knows);
        run.arrivals(client, times, Request::default());
    }
    let outcome = run.run();
    assert_eq!(outcome.good as usize, 3000 / clients * clients, "{kind:?}: all calls end");
    Shared {
        refused: outcome.refused(),
        mean: outcome.mean(),
        p99: outcome.p99(),
        last: outcome.last / best,
        most: outcome.most(0.0, outcome.last),
    }
}

/// When a server that is asked in the order of arrival, just when there is room, has taken all.
fn ideal(rule: Rule, plan: &[Vec<f64>]) -> f64 {
    let mut all: Vec<f64> = plan.iter().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    if let Rule::Concurrent(n, span) = rule {
        // Each call takes the place that is free first.
        let mut free = vec![0.0f64; n as usize];
        for at in all {
            let place = free.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("one place");
            *place = place.max(at) + span;
        }
        return free.into_iter().fold(0.0, f64::max);
    }
    let mut quota = Quota::new(rule);
    let mut now: f64 = 0.0;
    for at in all {
        now = now.max(at);
        loop {
            let wait = quota.wait(now, 1.0, 1.0);
            if wait == 0.0 {
                break;
            }
            now += wait;
        }
        quota.take(now, 1.0, 1.0);
    }
    now
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// Of the quota.
    pub(crate) used: f64,
    /// Of all calls.
    pub(crate) refused: f64,
}

/// A hundred workers look for 1000/s from 50/s on; 1 % of the calls fail by themselves. From 30 to 90 s.
pub(crate) fn found(kind: Kind, seed: u64) -> Used {
    let trouble = Trouble { bad: 0.01, ..Trouble::default() };
    let server = Server::new(Rule::Sliding(1000.0, 1.0), seed).trouble(trouble);
    let network = Network { delay: 0.005, retries_failed: false, ..Network::default() };
    let mut run = Simulation::new(kind, server, seed).network(network);
    let client = run.client(Knows::Start(50.0));
    run.workers(client, 100, any);
    let outcome = run.run_until(90.0);
    Used { used: outcome.taken(30.0, 90.0) / 60_000.0, refused: outcome.share_refused() }
}

/// Two calls an hour for a day. The rate after it that began with 5/s.
pub(crate) fn seldom(kind: Kind, seed: u64) -> f64 {
    let mut run = Simulation::new(kind, Server::new(OPEN, seed), seed);
    let client = run.client(Knows::Start(5.0));
    let hours = (0..24u32).flat_map(|hour| [f64::from(hour) * 3600.0; 2]);
    run.arrivals(client, hours.collect(), Request::default());
    run.run().rates.last().map_or(f64::NAN, |(_, rate)| *rate)
}

#[derive(Clone, Debug)]
pub(crate) struct Changed {
    /// Of the quota, from 10 to 30 s after it was halved, and from 60 to 80 s after it was doubled.
    pub(crate) used: [f64; 2],
    pub(crate) refused: f64,
    pub(crate) rates: Vec<(f64, f64)>,
}

/// Fifty workers; the quota halves after a minute, and doubles after two more.
pub(crate) fn changes(kind: Kind, rule: Rule, seed: u64) -> Changed {
    let trouble = Trouble { scale: vec![(60.0, 0.5), (180.0, 1.0)], ..Trouble::default() };
    let server = Server::new(rule, seed).trouble(trouble);
    let mut run = Simulation::new(kind, server, seed);
    let client = run.client(Knows::Start(2.0));
    run.workers(client, 50, any);
    let outcome = run.run_until(300.0);
    let halved = outcome.taken(70.0, 90.0) / (10.0 * rule.rate());
    let doubled = outcome.taken(240.0, 260.0) / (20.0 * rule.rate());
    Changed { used: [halved, doubled], refused: outcome.share_refused(), rates: outcome.rates }
}

/// Twenty workers behind a limit that is the server's, or `share` of it: `n` in any `window`, evenly spaced if
/// `is_even`, else as the server has it.
pub(crate) fn right_limit(
    kind: Kind,
    (n, window): (u32, f64),
    is_even: bool,
    share: f64,
    seed: u64,
) -> Used {
    let rule = Rule::Sliding(f64::from(n), window);
    let server = Server::new(rule, seed).fields(Fields::XRateLimit);
    let mut run = Simulation::new(kind, server, seed);
    let client = run.client(if is_even {
        Knows::Even(rule.rate() * share)
    } else {
        Knows::Window(n, window / share)
    });
    run.workers(client, 20, any);
    // From the second window on.
    let end = window + (5.0 * window).max(120.0);
    let outcome = run.run_until(end);
    let quota = rule.rate() * (end - window);
    Used { used: outcome.taken(window, end) / quota, refused: outcome.share_refused() }
}

/// An LLM's API: requests and tokens a minute, which come back steadily; 100 tokens a call on average. Twenty workers
/// behind a limit that is `guess` times as much, for ten minutes.
pub(crate) fn llm(kind: Kind, tokens_bind: bool, guess: u32, seed: u64) -> Used {
    let (requests, tokens) = if tokens_bind { (600u32, 48_000u32) } else { (480, 60_000) };
    let bucket = |n: u32| Quota::new(Rule::Bucket(f64::from(n) / 60.0, f64::from(n))).empty();
    let quotas = vec![bucket(requests), bucket(tokens).of(Counts::Tokens)];
    let server = Server::of(quotas, seed).fields(Fields::OpenAi);
    let mut run = Simulation::new(kind, server, seed);
    let client = run.client(Knows::Tokens(guess * requests, guess * tokens));
    run.workers(client, 20, |random| Request {
        tokens: random.between(50.0, 150.0) as u32,
        ..Request::default()
    });
    let outcome = run.run_until(600.0);
    let taken = &outcome.servers[0].taken;
    let used = if tokens_bind {
        let taken = taken.iter().map(|(_, request)| f64::from(request.tokens));
        taken.sum::<f64>() / f64::from(tokens)
    } else {
        taken.len() as f64 / f64::from(requests)
    };
    Used { used: used / 10.0, refused: outcome.share_refused() }
}

/// GitHub's search at 60 a minute and core at 5,000 an hour, four workers each behind a loose limit, for two hours.
/// The part of each quota that was used.
pub(crate) fn resources(kind: Kind, seed: u64) -> [f64; 2] {
    let quotas = [("search", 60.0, 60.0), ("core", 5000.0, 3600.0)]
        .map(|(route, n, window)| Quota::new(Rule::Fixed(n, window)).of(Counts::Route(route)));
    let server = Server::of(quotas.to_vec(), seed).fields(Fields::GitHub);
    let mut run = Simulation::new(kind, server, seed);
    let client = run.client(LIMIT);
    run.workers(client, 4, |_| Request { route: "search", ..Request::default() });
    run.workers(client, 4, |_| Request { route: "core", ..Request::default() });
    let outcome = run.run_until(7200.0);
    let taken = &outcome.servers[0].taken;
    [("search", 7200.0), ("core", 10_000.0)].map(|(route, quota)| {
        taken.iter().filter(|(_, request)| request.route == route).count() as f64 / quota
    })
}

/// One client of two hosts, one of which refuses for three seconds and names five. The longest wait of a call to the
/// other.
pub(crate) fn two_hosts(kind: Kind, seed: u64) -> f64 {
    let trouble = Trouble { refuses: Some((1.0, 4.0, 5.0)), ..Trouble::default() };
    let server = Server::new(OPEN, seed).trouble(trouble);
    let mut run = Simulation::new(kind, server, seed).server(Server::new(OPEN, seed));
    let client = run.client(Knows::Burst(100.0, 100));
    for host in 0..2 {
        let times = (0..200u32).map(|n| f64::from(n) * 0.1).collect();
        run.arrivals(client, times, Request { host, ..Request::default() });
    }
    run.run().waited[1]
}
