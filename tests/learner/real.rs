//! Models of rate limiters that others wrote, as they answer by default: what they take of a client, and refuse. Each is
//! named with the version whose answers were measured on loopback.

use crate::clients::{Kind, Knows};
use crate::scenarios::Used;
use crate::server::{Dated, Fields, Round, Rule, Server};
use crate::simulation::{Network, Outcome, Simulation};

/// A server, and for how many seconds it is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) rule: Rule,
    pub(crate) fields: Fields,
    /// Of a refusal, and how long it takes.
    pub(crate) refuses_with: (u16, f64),
    pub(crate) seconds: f64,
    pub(crate) knows: Knows,
}

/// It says nothing, and refuses with a bare status. The client guesses 200/s.
pub(crate) const fn bare(rule: Rule, status: u16) -> Setup {
    let (fields, knows) = (Fields::None, Knows::Even(200.0));
    Setup { rule, fields, refuses_with: (status, 0.0), seconds: 60.0, knows }
}

const fn dated(rule: Rule, dated: Dated) -> Setup {
    Setup { fields: Fields::Dated(dated), ..bare(rule, 429) }
}

/// nginx 1.22.1, `limit_req` of 10 r/s: a leaky bucket, of which refused calls take nothing.
pub(crate) const NGINX: Rule = Rule::Bucket(10.0, 1.0);
/// With `burst=5 nodelay`.
pub(crate) const NGINX_BURST: Rule = Rule::Bucket(10.0, 6.0);
/// nginx 1.22.1, `limit_conn` of 2, before a backend that takes 0.2 s.
pub(crate) const NGINX_CONN: Rule = Rule::Concurrent(2.0, 0.2);
/// rate-limiter-flexible 11.4.0 as its wiki has it, Flask-Limiter 4.1.1, slowapi 0.1.10, rack-attack 6.6.1 by default: a bare 429.
pub(crate) const SECOND: Rule = Rule::Opened(5.0, 1.0);
pub(crate) const TEN_SECONDS: Rule = Rule::Opened(20.0, 10.0);
/// `HAProxy` 2.6.12, `http_req_rate(10s) gt 20`: the average of two periods, with the calls that it refused.
pub(crate) const HAPROXY: Rule = Rule::Averaged(20.0, 10.0);

/// express-rate-limit 8.7.5 with its defaults.
pub(crate) const fn express(rule: Rule) -> Setup {
    dated(rule, Dated { reset: Round::Up, retry_after: [None, Some(Round::Up)], date_at: 0.0 })
}

/// rate-limiter-flexible 11.4.0 with the headers of its README.
pub(crate) const fn flexible(rule: Rule) -> Setup {
    dated(rule, Dated { reset: Round::Up, retry_after: [Some(Round::Not); 2], date_at: 0.0 })
}

/// koa-ratelimit 6.0.0 with its memory.
pub(crate) const fn koa(rule: Rule) -> Setup {
    dated(rule, Dated { reset: Round::Not, retry_after: [None, Some(Round::Down)], date_at: 0.0 })
}

/// Flask-Limiter 4.1.1 (limits 5.8).
pub(crate) const fn flask(rule: Rule) -> Setup {
    dated(rule, Dated { reset: Round::Next, retry_after: [Some(Round::Next); 2], date_at: 0.0 })
}

/// slowapi 0.1.10 with its headers, on uvicorn 0.54, whose `Date` is 0.45 to 1.83 s old.
pub(crate) const fn slowapi(rule: Rule) -> Setup {
    dated(rule, Dated { reset: Round::Late, retry_after: [Some(Round::Next); 2], date_at: 0.45 })
}

/// @nestjs/throttler 6.7.1, one without a name, and a client whose own limit is the right one.
pub(crate) const NEST: Setup = Setup {
    fields: Fields::Timer(10.0),
    knows: Knows::Even(2.0),
    ..bare(Rule::Sliding(20.0, 10.0), 429)
};

/// Sixteen tasks that call one after the other.
pub(crate) fn outcome(setup: &Setup, seed: u64) -> Outcome {
    let &Setup { rule, fields, refuses_with: (status, slow), seconds, knows } = setup;
    let server = Server::new(rule, seed).fields(fields).refuses_with(status, slow);
    // Loopback.
    let network = Network { delay: 0.0005, ..Network::default() };
    let mut run = Simulation::new(Kind::Ours, server, seed).network(network);
    let client = run.client(knows);
    run.workers(client, 16, |_| crate::server::Request::default());
    run.run_until(seconds)
}

pub(crate) fn used(setup: &Setup, seed: u64) -> Used {
    let outcome = outcome(setup, seed);
    let used = outcome.taken(0.0, setup.seconds) / setup.rule.most(setup.seconds);
    Used { used, refused: outcome.share_refused() }
}
