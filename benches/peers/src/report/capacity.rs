//! What one machine, one Redis server and a cluster of them carry: a formula, and a simulation beyond what this
//! machine shows.
//!
//! A *line* is one key in one process. It has at most one request in flight; what is asked meanwhile goes with the
//! next. A server works off its requests one after the other, each for `c0 + permits * c1`. The simulation draws
//! its arrivals from a fixed seed, so that each run prints the same table.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Write as _;

/// Seconds of the server for a request, and for each permit in it; and of the network, there and back.
#[derive(Clone, Copy)]
pub struct Costs {
    pub request: f64,
    pub permit: f64,
    pub network: f64,
}

/// Servers, the lines on each of them, and the calls a second of each line.
#[derive(Clone, Copy)]
pub struct Load {
    pub servers: usize,
    pub lines: usize,
    pub calls: f64,
}

pub struct Outcome {
    /// Calls answered over calls made, on average.
    pub carried: f64,
    /// The part of its time in which the busiest server works.
    pub busy: f64,
    pub permits_a_request: f64,
    /// Seconds.
    pub p50: f64,
    pub p99: f64,
}

impl Costs {
    /// The calls a second that a server carries from that number of lines, if a call may take so long on average.
    ///
    /// A line sends a request each `wait`. That takes `lines * request / wait` of the server's time, and the rest
    /// is for permits.
    pub fn carries(&self, lines: f64, wait: f64) -> f64 {
        ((1.0 - lines * self.request / wait) / self.permit).max(0.0)
    }

    /// The part of its time in which a server works that answers at once: a line that has an answer sends what came
    /// meanwhile, or waits for the next call.
    pub fn busy(&self, load: Load) -> f64 {
        let (lines, trip) = (load.lines as f64, self.network + self.request);
        let requests = lines / (trip + (-load.calls * trip).exp() / load.calls);
        requests * self.request + lines * load.calls * self.permit
    }

    /// The time between two requests of a line: the network's while the server keeps up, and otherwise that in which
    /// it works off the requests of all lines.
    pub fn round(&self, load: Load) -> f64 {
        if self.busy(load) < 1.0 {
            return self.network + self.request;
        }
        let lines = load.lines as f64;
        let rest = 1.0 - lines * load.calls * self.permit;
        if rest > 0.0 { lines * self.request / rest } else { f64::INFINITY }
    }
}

/// Numbers that follow no pattern, the same in each run.
struct Scatter(u64);

impl Scatter {
    /// From zero to one, neither included.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// The time until the next of arrivals at this rate.
    fn gap(&mut self, rate: f64) -> f64 {
        -self.unit().ln() / rate
    }
}

/// A line: the calls that wait for its next request, those in flight, and when the next one comes.
#[derive(Default)]
struct Line {
    waiting: VecDeque<f64>,
    in_flight: Vec<f64>,
    next: f64,
}

/// Nanoseconds, so that times are ordered.
type Time = u64;

/// What happens to a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Call,
    AtServer,
    Reply,
}

/// Servers do not know of each other, so one after the other is simulated.
pub fn simulate(costs: Costs, load: Load, seconds: f64) -> Outcome {
    let mut scatter = Scatter(1);
    let (mut busiest, mut requests, mut answered) = (0.0, 0_u32, 0_u32);
    // What happens in the first half is not counted: the servers begin idle.
    let from = seconds / 2.0;
    let mut waits = Vec::new();
    for _ in 0..load.servers {
        let (mut free_at, mut worked) = (0.0_f64, 0.0);
        let mut lines: Vec<Line> = (0..load.lines).map(|_| Line::default()).collect();
        let mut events = BinaryHeap::new();
        let push = |events: &mut BinaryHeap<_>, at: f64, event, line: usize| {
            // Cut up: what is due at a time has come when the event of that time happens.
            events.push(Reverse(((at * 1e9) as Time + 1, event, line)));
        };
        for (index, line) in lines.iter_mut().enumerate() {
            line.next = scatter.gap(load.calls);
            push(&mut events, line.next, Event::Call, index);
        }
        while let Some(Reverse((at, event, index))) = events.pop() {
            let now = at as f64 / 1e9;
            if now > seconds {
                break;
            }
            let line = &mut lines[index];
            match event {
                Event::Call => {}
                Event::AtServer => {
                    let work = costs.request + line.in_flight.len() as f64 * costs.permit;
                    free_at = free_at.max(now) + work;
                    worked += if now > from { work } else { 0.0 };
                    push(&mut events, free_at + costs.network / 2.0, Event::Reply, index);
                    continue;
                }
                Event::Reply if now > from => {
                    answered += line.in_flight.len() as u32;
                    waits.extend(line.in_flight.drain(..).map(|came| now - came));
                }
                Event::Reply => line.in_flight.clear(),
            }
            while line.next <= now {
                line.waiting.push_back(line.next);
                line.next += scatter.gap(load.calls);
            }
            if line.in_flight.is_empty() && !line.waiting.is_empty() {
                line.in_flight.extend(line.waiting.drain(..));
                requests += u32::from(now > from);
                push(&mut events, now + costs.network / 2.0, Event::AtServer, index);
            } else if line.in_flight.is_empty() {
                push(&mut events, line.next, Event::Call, index);
            }
        }
        busiest = f64::max(busiest, worked / (seconds - from));
    }
    let made = (load.servers * load.lines) as f64 * load.calls * (seconds - from);
    waits.sort_by(f64::total_cmp);
    let at =
        |share: f64| waits.get((waits.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    Outcome {
        carried: (f64::from(answered) / made).min(1.0),
        busy: busiest.min(1.0),
        permits_a_request: f64::from(answered) / f64::from(requests.max(1)),
        p50: at(0.5),
        p99: at(0.99),
    }
}

const LOADS: [Load; 8] = [
    Load { servers: 1, lines: 10, calls: 100.0 },
    Load { servers: 1, lines: 100, calls: 1_000.0 },
    Load { servers: 1, lines: 100, calls: 10_000.0 },
    Load { servers: 1, lines: 100, calls: 40_000.0 },
    Load { servers: 1, lines: 10_000, calls: 10.0 },
    Load { servers: 1, lines: 10_000, calls: 100.0 },
    Load { servers: 10, lines: 1_000, calls: 1_000.0 },
    Load { servers: 100, lines: 100, calls: 10_000.0 },
];

/// The table of the page, simulated.
pub fn table(costs: Costs) -> String {
    let mut table = String::from(
        "| servers | lines on each | calls a second of each | in all | busy, `T` by the formula | busy | permits a request | p50 | p99 | carried |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for load in LOADS {
        let (all, round) = (load.lines as f64 * load.calls, costs.round(load));
        // Some hundred thousand calls to each server at least, and some dozen rounds.
        let outcome =
            simulate(costs, load, (3e5 / all).clamp(0.02, 100.0).max(round.min(0.2) * 24.0));
        writeln!(
            table,
            "| {} | {} | {} | {:.3} M | {:.2}, {:.2} ms | {:.2} | {:.1} | {:.2} ms | {:.2} ms | {:.0} % |",
            load.servers,
            load.lines,
            load.calls,
            all * load.servers as f64 / 1e6,
            costs.busy(load).min(1.0),
            round * 1e3,
            outcome.busy,
            outcome.permits_a_request,
            outcome.p50 * 1e3,
            outcome.p99 * 1e3,
            outcome.carried * 100.0,
        )
        .expect("a string");
    }
    table
}
