//! Clients, the network and servers together.

use std::cell::RefCell;
use std::rc::Rc;

use crate::clients::{Client, Kind, Knows};
use crate::random::Random;
use crate::server::{Answer, Request, Server};
use crate::world::World;

/// A run. Set what differs, add clients, and run it.
pub(crate) struct Simulation {
    world: Rc<World>,
    network: Network,
    servers: Vec<Server>,
    clients: Vec<Rc<dyn Client>>,
    kind: Kind,
    seed: u64,
    plans: Vec<Plan>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// One way, in seconds, and the part by which it is more or less.
    pub(crate) delay: f64,
    pub(crate) jitter: f64,
    /// Whether a call that failed is tried again.
    pub(crate) retries_failed: bool,
}

impl Default for Network {
    fn default() -> Self {
        Self { delay: 0.025, jitter: 0.2, retries_failed: true }
    }
}

/// What a client sends.
enum Plan {
    At(usize, Vec<f64>, Request),
    /// One call after the other: what each asks for.
    Loop(usize, fn(&mut Random) -> Request),
}

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) sent: u64,
    pub(crate) good: u64,
    /// From a call's arrival at its client to its good answer.
    pub(crate) times: Vec<f64>,
    /// The last good answer.
    pub(crate) last: f64,
    /// The longest wait of a first try at its client, by host.
    pub(crate) waited: Vec<f64>,
    /// The rate of the first client, after each of its answers.
    pub(crate) rates: Vec<(f64, f64)>,
    pub(crate) servers: Vec<Server>,
}

impl Outcome {
    pub(crate) fn mean(&self) -> f64 {
        self.times.iter().sum::<f64>() / self.times.len().max(1) as f64
    }

    pub(crate) fn p99(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len() * 99 / 100).copied().unwrap_or_default()
    }

    pub(crate) fn refused(&self) -> f64 {
        self.servers.iter().map(|server| server.refused).sum::<u64>() as f64
    }

    /// Of all calls.
    pub(crate) fn share_refused(&self) -> f64 {
        self.refused() / self.sent.max(1) as f64
    }

    /// Good answers of the first server between two times.
    pub(crate) fn taken(&self, from: f64, to: f64) -> f64 {
        let taken = self.servers[0].taken.iter().filter(|(at, _)| from <= *at && *at < to);
        taken.count() as f64
    }

    /// The calls that the first server took in the second from a time on, and those that it did not.
    pub(crate) fn second(&self, from: f64) -> (f64, f64) {
        let asked = &self.servers[0].asked;
        let arrived = asked.iter().filter(|at| from <= **at && **at < from + 1.0).count() as f64;
        let taken = self.taken(from, from + 1.0);
        (taken, arrived - taken)
    }

    /// The most arrivals at the first server in a second of its clock, between two times.
    pub(crate) fn most(&self, from: f64, to: f64) -> f64 {
        let mut seconds = vec![0u32; (to - from).ceil() as usize];
        for at in self.servers[0].asked.iter().filter(|at| from <= **at && **at < to) {
            seconds[(at - from) as usize] += 1;
        }
        f64::from(seconds.into_iter().max().unwrap_or_default())
    }
}

impl Simulation {
    pub(crate) fn new(kind: Kind, server: Server, seed: u64) -> Self {
        Self {
            world: Rc::default(),
            network: Network::default(),
            servers: vec![server],
            clients: Vec::new(),
            kind,
            seed,
            plans: Vec::new(),
        }
    }

    pub(crate) fn network(self, network: Network) -> Self {
        Self { network, ..self }
    }

    /// A second server, and so on: [`Request::host`] tells them apart.
    pub(crate) fn server(mut self, server: Server) -> Self {
        self.servers.push(server);
        self
    }

    /// A client that knows nothing of the others.
    pub(crate) fn client(&mut self, knows: Knows) -> usize {
        let seed = self.seed.wrapping_mul(7919) + self.clients.len() as u64;
        self.clients.push(self.kind.client(&self.world, knows, seed));
        self.clients.len() - 1
    }

    /// Calls that come to a client by themselves.
    pub(crate) fn arrivals(&mut self, client: usize, times: Vec<f64>, request: Request) {
        self.plans.push(Plan::At(client, times, request));
    }

    /// Workers that send one call after the other.
    pub(crate) fn workers(&mut self, client: usize, n: usize, request: fn(&mut Random) -> Request) {
        self.plans.extend((0..n).map(|_| Plan::Loop(client, request)));
    }

    pub(crate) fn run(self) -> Outcome {
        self.run_until(1e6)
    }

    pub(crate) fn run_until(self, end: f64) -> Outcome {
        let outcome = Outcome { waited: vec![0.0; self.servers.len()], ..Outcome::default() };
        let run = Rc::new(Run {
            world: Rc::clone(&self.world),
            network: self.network,
            servers: self.servers.into_iter().map(RefCell::new).collect(),
            random: RefCell::new(Random::new(self.seed)),
            outcome: RefCell::new(outcome),
        });
        for plan in self.plans {
            let (Plan::At(client, ..) | Plan::Loop(client, ..)) = plan;
            let caller = Caller {
                run: Rc::clone(&run),
                client: Rc::clone(&self.clients[client]),
                is_first: client == 0,
            };
            match plan {
                Plan::At(_, times, request) => self.world.spawn(async move {
                    for time in times {
                        caller.run.world.sleep_until(time).await;
                        let call = caller.clone().call(request);
                        caller.run.world.spawn(call);
                    }
                }),
                Plan::Loop(_, request) => self.world.spawn(async move {
                    loop {
                        let request = request(&mut caller.run.random.borrow_mut());
                        caller.clone().call(request).await;
                    }
                }),
            }
        }
        self.world.run_until(end);
        let mut outcome = run.outcome.take();
        outcome.servers = run.servers.iter().map(|server| server.borrow().clone()).collect();
        outcome
    }
}

struct Run {
    world: Rc<World>,
    network: Network,
    servers: Vec<RefCell<Server>>,
    random: RefCell<Random>,
    outcome: RefCell<Outcome>,
}

impl Run {
    async fn travel(&self) {
        let Network { delay, jitter, .. } = self.network;
        let time = delay * (1.0 + jitter * self.random.borrow_mut().between(-1.0, 1.0));
        self.world.sleep(time).await;
    }

    async fn serve(&self, request: &Request) -> Answer {
        let server = &self.servers[request.host];
        let (answer, span) = server.borrow_mut().ask(self.world.now(), request);
        if span > 0.0 {
            self.world.sleep(span).await;
            if answer.is_good() {
                server.borrow_mut().leave(request);
            }
        }
        answer
    }
}

#[derive(Clone)]
struct Caller {
    run: Rc<Run>,
    client: Rc<dyn Client>,
    is_first: bool,
}

impl Caller {
    /// A call, until it is answered well, or given up.
    async fn call(self, request: Request) {
        let run = &self.run;
        let arrived = run.world.now();
        for tries in 0.. {
            let sent = self.client.acquire(&request).await;
            {
                let mut outcome = run.outcome.borrow_mut();
                outcome.sent += 1;
                if tries == 0 {
                    let longest = &mut outcome.waited[request.host];
                    *longest = longest.max(run.world.now() - arrived);
                }
            }
            run.travel().await;
            let answer = run.serve(&request).await;
            run.travel().await;
            sent.answered(&answer);
            if let Some(rate) = self.client.rate().filter(|_| self.is_first) {
                run.outcome.borrow_mut().rates.push((run.world.now(), rate));
            }
            if answer.is_good() {
                let (mut outcome, now) = (run.outcome.borrow_mut(), run.world.now());
                outcome.good += 1;
                outcome.times.push(now - arrived);
                outcome.last = now;
                return;
            }
            if !answer.is_refused() && !run.network.retries_failed {
                return;
            }
            let wait = self.client.before_retry(tries, &answer, &mut run.random.borrow_mut());
            run.world.sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Fields, Rule};

    fn run(kind: Kind, rule: Rule, seed: u64) -> Outcome {
        let server = Server::new(rule, seed).fields(Fields::RetryAfter);
        let mut run = Simulation::new(kind, server, seed);
        let client = run.client(Knows::Start(2.0));
        run.workers(client, 8, |_| Request::default());
        run.run_until(60.0)
    }

    #[test]
    fn a_run_takes_the_same_steps_each_time() {
        for kind in Kind::ALL {
            let steps = |seed| {
                let outcome = run(kind, Rule::Bucket(10.0, 10.0), seed);
                (outcome.servers[0].asked.clone(), outcome.times)
            };
            assert_eq!(steps(1), steps(1), "{kind:?}");
            assert_ne!(steps(1), steps(2), "{kind:?}");
        }
    }

    /// The most good answers in any span of this length.
    fn most_within(taken: &[(f64, Request)], span: f64) -> usize {
        let within = |from: usize| {
            let end = taken[from].0 + span - 1e-6;
            taken[from..].iter().take_while(|(at, _)| *at < end).count()
        };
        (0..taken.len()).map(within).max().unwrap_or_default()
    }

    #[test]
    fn a_server_grants_its_quota_and_no_more() {
        // The rule, a span, and how much it may grant in any such span.
        for (rule, span, most) in [
            (Rule::Bucket(10.0, 10.0), 1.0, 20),
            (Rule::Gcra(10.0, 1.0), 1.0, 11),
            (Rule::Sliding(10.0, 1.0), 1.0, 10),
            (Rule::Sliding(100.0, 10.0), 10.0, 100),
            (Rule::Fixed(10.0, 1.0), 1.0, 20),
            (Rule::Concurrent(2.0, 0.2), 0.2, 2),
            (Rule::Opened(10.0, 1.0), 1.0, 20),
        ] {
            let mut random = Random::new(7);
            let mut server = Server::new(rule, 7);
            let (mut now, mut under_way) = (0.0, Vec::new());
            while now < 100.0 {
                now += random.gap() * 0.02;
                under_way.retain(|end| {
                    if *end <= now {
                        server.leave(&Request::default());
                    }
                    *end > now
                });
                let (answer, takes) = server.ask(now, &Request::default());
                if answer.is_good() {
                    under_way.push(now + takes);
                }
            }
            let quota = rule.rate() * 100.0;
            let taken = server.taken.len() as f64;
            assert!((0.8 * quota..=quota + 11.0).contains(&taken), "{rule:?}: {taken} of {quota}");
            let fullest = most_within(&server.taken, span);
            assert!(fullest <= most, "{rule:?}: {fullest} in {span} s");
        }
    }
}
