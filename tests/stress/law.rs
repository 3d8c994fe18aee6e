//! Law 1 over the real grants, from times between which each charge must lie.
//!
//! A grant reports its wait, and so its due time. Due times must keep the law without any credit
//! for late alarms. The law then also holds for the times at which calls returned: those are
//! between the same bounds or outside them, so that no span holds more.

use std::iter::successors;
use std::time::Duration;

/// Permits that were charged at a time from `from` to `until`, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charged {
    pub(crate) from: i64,
    pub(crate) until: i64,
    pub(crate) n: u32,
}

/// How much may be granted in a span of time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// The permits that come at the rate, and a burst. Both in picoseconds: the interval of a
    /// permit, and the time that the burst is worth.
    Rate { interval: i128, burst: i128 },
    /// The permits in any window, and its length in nanoseconds.
    Window { permits: i128, window: i64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    pub(crate) limit: Limit,
    /// The cost under this policy of a call for `n`.
    pub(crate) share: fn(u32) -> u32,
}

/// The largest difference of the two clocks, in nanoseconds; `system_clock.rs` has the same bound.
pub(crate) const CLOCKS: i64 = 100_000;

fn picos(span: Duration) -> i128 {
    i128::try_from(span.as_nanos() * 1000).expect("a time")
}

impl Law {
    /// One permit each `interval`, a burst of `burst` and one prepaid request of `most`.
    pub(crate) fn smooth(interval: Duration, burst: Duration, most: u32) -> Self {
        Self::bucket(interval, most).with_more(picos(burst))
    }

    /// One permit each `interval`, and `capacity` at once.
    pub(crate) fn bucket(interval: Duration, capacity: u32) -> Self {
        let interval = picos(interval);
        let burst = interval * i128::from(capacity);
        Self { limit: Limit::Rate { interval, burst }, share: |n| n }
    }

    pub(crate) fn window(permits: u32, window: Duration) -> Self {
        let window = i64::try_from(window.as_nanos()).expect("short");
        Self { limit: Limit::Window { permits: i128::from(permits), window }, share: |n| n }
    }

    pub(crate) fn with_share(self, share: fn(u32) -> u32) -> Self {
        Self { share, ..self }
    }

    fn with_more(mut self, more: i128) -> Self {
        if let Limit::Rate { burst, .. } = &mut self.limit {
            *burst += more;
        }
        self
    }

    /// By how many nanoseconds the fullest span would have to be longer. Negative if it was not full.
    pub(crate) fn slack_needed(&self, history: &[Charged]) -> i64 {
        let mut charged: Vec<_> = history.to_vec();
        charged.iter_mut().for_each(|charged| charged.n = (self.share)(charged.n));
        charged.sort_unstable_by_key(|charged| charged.from);
        match self.limit {
            Limit::Rate { interval, burst } => {
                let worth = |n: u32| i128::from(n) * interval;
                let picos = |nanos: i64| i128::from(nanos) * 1000;
                let fullest = fullest(&charged, worth, picos, i64::MAX);
                let over = fullest.map(|(until, worth)| worth - picos(until)).max();
                let over = over.map_or(i128::MIN, |over| (over - burst).div_euclid(1000));
                i64::try_from(over).unwrap_or(i64::MIN)
            }
            Limit::Window { permits, window } => {
                let is_kept = |slack: i64| {
                    let mut all = fullest(&charged, i128::from, |_| 0, window - slack);
                    all.all(|(_, granted)| granted <= permits)
                };
                // Found by doubling: to know about how much is enough.
                let doubled = successors(Some(1), |slack| Some(slack * 2));
                let mut doubled = doubled.take_while(|&slack| slack < window);
                if is_kept(0) {
                    doubled.find(|&slack| !is_kept(-slack)).map_or(-window, |slack| -slack / 2)
                } else {
                    doubled.find(|&slack| is_kept(slack)).unwrap_or(window)
                }
            }
        }
    }
}

/// For each end of a span, the greatest sum of its charges and `base` of its start, over all spans
/// shorter than `length` that end there. Only charges that are certainly inside count. `charged` is
/// sorted by `from`.
fn fullest<'a>(
    charged: &'a [Charged],
    worth: impl Fn(u32) -> i128 + 'a,
    base: impl Fn(i64) -> i128 + 'a,
    length: i64,
) -> impl Iterator<Item = (i64, i128)> + 'a {
    let mut by_end: Vec<usize> = (0..charged.len()).collect();
    by_end.sort_unstable_by_key(|&index| charged[index].until);
    let mut spans = Spans::new(charged.len());
    let mut gone = 0;
    by_end.into_iter().map(move |index| {
        let Charged { from, until, n } = charged[index];
        while gone < charged.len() && charged[gone].from <= until.saturating_sub(length) {
            spans.set(gone, Span::NONE);
            gone += 1;
        }
        if index >= gone {
            spans.set(index, Span { worth: worth(n), best: base(from) + worth(n) });
        }
        (until, spans.all().best)
    })
}

/// The sums over some neighbouring starts.
#[derive(Clone, Copy)]
struct Span {
    worth: i128,
    /// From the best of these starts on.
    best: i128,
}

impl Span {
    /// Far enough from the end to be added to.
    const NONE: Self = Self { worth: 0, best: i128::MIN / 2 };

    fn before(self, later: Self) -> Self {
        Self { worth: self.worth + later.worth, best: later.best.max(self.best + later.worth) }
    }
}

/// A tree over all starts in order, so that a change costs a path and not a pass.
struct Spans {
    leaves: usize,
    tree: Vec<Span>,
}

impl Spans {
    fn new(starts: usize) -> Self {
        let leaves = starts.next_power_of_two();
        Self { leaves, tree: vec![Span::NONE; 2 * leaves] }
    }

    fn set(&mut self, index: usize, span: Span) {
        let mut node = self.leaves + index;
        self.tree[node] = span;
        while node > 1 {
            node /= 2;
            self.tree[node] = self.tree[2 * node].before(self.tree[2 * node + 1]);
        }
    }

    fn all(&self) -> Span {
        self.tree[1]
    }
}

#[cfg(test)]
mod tests {
    use super::{Charged, Law, Limit};
    use crate::random::Random;
    use std::time::Duration;

    /// Each span from the start of one to the end of another.
    fn slowly(law: &Law, history: &[Charged]) -> i64 {
        let ends = |start: i64| history.iter().map(|last| last.until).map(move |end| (start, end));
        let spans = history.iter().flat_map(|first| ends(first.from));
        let mut over = Vec::new();
        for (start, end) in spans.filter(|(start, end)| start <= end) {
            let inside =
                history.iter().filter(|charged| start <= charged.from && charged.until <= end);
            let granted: i128 = inside.map(|charged| i128::from((law.share)(charged.n))).sum();
            over.push(match law.limit {
                Limit::Rate { interval, burst } => {
                    let over = granted * interval - burst - i128::from(end - start) * 1000;
                    i64::try_from(over.div_euclid(1000)).expect("short")
                }
                Limit::Window { permits, window } if granted > permits => window - (end - start),
                Limit::Window { window, .. } => -window,
            });
        }
        over.into_iter().max().expect("a span")
    }

    #[test]
    fn the_sweep_agrees_with_a_check_of_each_span() {
        let mut chance = Random(1);
        for _ in 0..300 {
            let length = 1 + chance.below(30);
            let history: Vec<_> = (0..length)
                .map(|_| {
                    let from = i64::try_from(chance.below(500)).expect("small");
                    let until = from + i64::try_from(chance.below(20)).expect("small");
                    Charged { from, until, n: chance.cost(4) }
                })
                .collect();
            let rate = Law::bucket(Duration::from_nanos(7), 9).with_share(|n| n * 2);
            assert_eq!(rate.slack_needed(&history), slowly(&rate, &history));
            let window = Law::window(12, Duration::from_nanos(64));
            let (found, slack) = (window.slack_needed(&history), slowly(&window, &history));
            let is_near = if slack > 0 {
                (slack..=2 * slack).contains(&found)
            } else {
                (slack..=slack / 4).contains(&found) || found == -64
            };
            assert!(is_near, "{found} for {slack}");
        }
    }
}
