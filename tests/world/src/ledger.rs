//! What the server has charged, read from the requests and the replies, and the laws over it.

use std::time::Duration;

use redis::Value;
use tollgate::redis::{Reply, Request};

use crate::requests::{Form, is_take, number};

/// A booking of the server.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Charge {
    pub(crate) process: usize,
    cost: u32,
    /// By the server's clock.
    pub(crate) due: Duration,
    sequence: u32,
    /// Whether the process has heard of it.
    pub(crate) is_heard: bool,
    /// Whether the server was told that it is given back.
    pub(crate) is_returned: bool,
    /// How many times the server had lost its data before it.
    age: u32,
}

/// How much a rule allows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Law {
    /// In any span its burst, and the rate times the span.
    Rate { burst: f64, per_second: f64 },
    /// In any span of this length.
    Window { most: u32, span: Duration },
    /// At any time, for as long as they are held.
    Places { most: usize },
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Ledger {
    pub(crate) charges: Vec<Charge>,
    age: u32,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { charges: Vec::new(), age: 0 }
    }

    /// The server has lost its data: what it grants from now on counts by itself.
    pub(crate) fn begin_again(&mut self) {
        self.age += 1;
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.age > 0
    }

    /// The server has run a request at `now`. Returns the numbers of its bookings.
    pub(crate) fn note(
        &mut self,
        form: Form,
        (process, request): (usize, &Request),
        (now, value): (Duration, &Value),
    ) -> Vec<usize> {
        let reply = request.reply(value.clone()).expect("an answer to this request");
        if matches!(reply, Reply::PolicyMismatch(..)) {
            panic!("{process} and the key have one policy: {reply:?}");
        }
        let from = self.charges.len();
        if is_take(request) {
            for booked in form.booked(request, &reply) {
                // The server knows whole microseconds.
                let now = u64::try_from(now.as_micros()).expect("a time");
                self.charges.push(Charge {
                    process,
                    cost: booked.cost,
                    due: Duration::from_micros(now + booked.wait),
                    sequence: booked.sequence,
                    is_heard: false,
                    is_returned: false,
                    age: self.age,
                });
            }
            return (from..self.charges.len()).collect();
        }
        for sequence in returned(form, request) {
            // The numbers begin again when the server has lost its data.
            let is_it = |it: &&mut Charge| {
                (it.process, it.sequence) == (process, sequence) && !it.is_returned
            };
            let charge = self.charges.iter_mut().rev().find(is_it);
            let charge = charge.expect("a process gives back what it was charged, and once");
            charge.is_returned = true;
        }
        Vec::new()
    }

    /// At most what the rule allows was charged and not given back, in any span.
    pub(crate) fn check(&self, law: Law) {
        for age in 0..=self.age {
            let kept = self.charges.iter().filter(|it| it.age == age && !it.is_returned);
            let mut kept: Vec<_> = kept.map(|it| (it.due, it.cost)).collect();
            kept.sort_unstable();
            for (index, &(first, _)) in kept.iter().enumerate() {
                let mut sum = 0;
                for &(due, cost) in &kept[index..] {
                    sum += cost;
                    let span = due - first;
                    let is_kept = match law {
                        // A wait is rounded up to whole microseconds.
                        Law::Rate { burst, per_second } => {
                            f64::from(sum) <= burst + per_second * (span.as_secs_f64() + 2e-6)
                        }
                        Law::Window { most, span: whole } => span >= whole || sum <= most,
                        Law::Places { .. } => true,
                    };
                    assert!(is_kept, "{sum} within {span:?} from {first:?} on: {kept:?}");
                }
            }
        }
    }

    /// How many bookings of a process are kept, of those that are due by `now`.
    pub(crate) fn kept(&self, process: usize, is_heard: bool, now: Duration) -> usize {
        let is_one = |it: &&Charge| {
            it.process == process && it.is_heard == is_heard && !it.is_returned && it.due <= now
        };
        self.charges.iter().filter(is_one).count()
    }
}

/// The numbers of the charges that a request gives back.
pub(crate) fn returned(form: Form, request: &Request) -> Vec<u32> {
    if is_take(request) {
        return Vec::new();
    }
    let refunds = form.changes(request).into_iter().filter(|&(what, _)| what == b'R');
    refunds.map(|(_, rest)| number(&rest[8 * form.width + 8..])).collect()
}
