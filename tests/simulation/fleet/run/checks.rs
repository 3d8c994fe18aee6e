//! The conditions at the end of a run.

use std::time::Duration;

use futures::future::FutureExt;
use tollgate::Event;
use tollgate::redis::{RedisRateLimiter, Scripted, State};

use super::super::manual::Manual;
use super::super::wire::lock;
use super::{Granted, Run};

impl<P: Scripted + std::fmt::Debug> Run<P> {
    pub(super) fn check(&self) {
        assert_eq!(lock(&self.world).tasks.len(), 0, "all is quiet");
        for limiter in &self.limiters {
            assert_eq!((limiter.queue_len(), limiter.state()), (0, State::Up));
        }
        for events in &self.events {
            let events = events.lock().expect("whole");
            let turns = events.iter().filter_map(|event| match event {
                Event::Down { .. } => Some(true),
                Event::Up { .. } => Some(false),
                _ => None,
            });
            let turns: Vec<_> = turns.collect();
            let expected: Vec<_> = (0..turns.len()).map(|turn| turn % 2 == 0).collect();
            assert!(turns == expected && turns.len() % 2 == 0, "{events:?}");
        }
        (0..self.limiters.len()).for_each(|line| self.check_line(line));
        if self.fails {
            (0..self.keys.len()).for_each(|key| self.check_key(key));
        }
        let observers = self.observers();
        let quotas = || {
            let quota = |observer: &RedisRateLimiter<P, Manual>| {
                observer.quota().now_or_never().expect("at once").expect("Redis is there")
            };
            observers.iter().map(quota).collect::<Vec<_>>()
        };
        let full = quotas().iter().filter_map(|quota| quota.reset_after).max();
        self.clock.advance(full.unwrap_or_default());
        for (key, quota) in quotas().into_iter().enumerate() {
            // An absent key is new until permits are taken.
            let charged = &lock(&self.world).charged;
            let is_there = charged.iter().any(|charged| charged.line % self.keys.len() == key);
            let is_full = quota.remaining == quota.limit || !is_there || self.kinds.loses;
            assert!(is_full, "an idle limiter is full: {quota:?}");
        }
    }

    /// Charged permits were granted or given back, and each call got one outcome.
    fn check_line(&self, line: usize) {
        let tally = &self.tallies[line];
        let stats = self.limiters[line].key_stats();
        if self.fails {
            assert_eq!(stats.granted, tally.granted + tally.untaken, "{tally:?}");
            assert_eq!((stats.refused, stats.given_up), (tally.refused, tally.given_up));
            let ended = tally.granted + tally.refused + tally.given_up;
            assert_eq!(ended, tally.entered, "{tally:?}");
        }
        let world = lock(&self.world);
        let charged: Vec<_> = world.charged.iter().filter(|charged| charged.line == line).collect();
        let sum = |answered| -> u64 {
            let these = charged.iter().filter(|charged| charged.answered == answered);
            these.map(|charged| u64::from(charged.cost)).sum()
        };
        let back = world.given_back[line].saturating_sub(tally.given_back);
        let ends = tally.taken + back;
        assert!(sum(true) >= ends, "{} charged, {ends} granted or returned", sum(true));
        // Permits given back while Redis is down are dropped.
        let dropped = self.downs() > 0
            || self.keys.len() > 1 && (self.weather.faults > 0 || self.kinds.outages)
            || self.sets_policy
            || self.weather.ends > 0;
        assert!(dropped || sum(true) == ends, "{} charged, {ends} granted or returned", sum(true));
        if self.weather.ends == 0 {
            assert!(
                tally.unknown <= world.unknown[line],
                "an error claims a charge that was never requested"
            );
            let unheard = sum(false);
            let may = tally.unknown_cost + tally.left_cost;
            assert!(unheard <= may || !self.fails, "{unheard} lost, {may} reported");
        }
        // No caller is granted before its ticket is due.
        for cost in (1..=5).filter(|_| !self.local) {
            let mut tickets: Vec<_> = charged
                .iter()
                .filter(|charged| charged.answered && charged.cost == cost)
                .map(|charged| charged.due)
                .collect();
            tickets.sort_unstable();
            let of_cost = |granted: &&Granted| granted.line == line && granted.cost == cost;
            let mut dues: Vec<_> =
                self.granted.iter().filter(of_cost).map(|granted| granted.due).collect();
            dues.sort_unstable();
            assert!(dues.len() <= tickets.len());
            for (due, ticket) in dues.iter().zip(&tickets) {
                assert!(due >= ticket, "granted at {due:?}, due at {ticket:?}");
            }
        }
        if !self.local {
            let mut granted: Vec<_> = self.granted.iter().filter(|g| g.line == line).collect();
            // Equals are in FIFO order.
            granted.sort_unstable_by_key(|granted| (granted.ahead, granted.order));
            for pair in granted.windows(2).filter(|pair| pair[0].ahead == pair[1].ahead) {
                assert!(pair[0].due <= pair[1].due, "out of order: {pair:?}");
            }
        }
    }

    /// At most the rate and the burst in any span, but for replies that came late.
    fn check_key(&self, key: usize) {
        let world = lock(&self.world);
        let late = world.charged.iter().filter(|charged| charged.answered);
        // A refund is dated by the time it was sent.
        let late = late.map(|charged| charged.late).max().unwrap_or_default().max(world.longest);
        let mut granted: Vec<_> =
            self.granted.iter().filter(|granted| granted.line % self.keys.len() == key).collect();
        granted.sort_unstable_by_key(|granted| granted.due);
        // Within the longest horizon, and a burst.
        let horizon = self.rules.rate / 4.0;
        let again = f64::from(self.mishaps[key]) * (horizon + self.rules.burst + 1.0);
        // No caller is granted before those booked at half the rate.
        let again = again + if self.sets_policy { horizon } else { 0.0 };
        // Of all sums that end here, the one furthest above the rate.
        let (mut over, mut before) = (0.0_f64, Duration::ZERO);
        for granted in granted {
            over -= (granted.due - before).as_secs_f64() * self.rules.rate;
            before = granted.due;
            over = over.max(0.0) + f64::from(granted.kept);
            let bound = self.rules.burst + late.as_secs_f64() * self.rules.rate + again + 0.01;
            assert!(over <= bound, "{over} above the rate at {before:?}, {bound} may be");
        }
    }
}
