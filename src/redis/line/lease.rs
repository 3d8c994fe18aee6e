//! Permits in flight: how much this process holds, and when it must renew the lease on them.

use super::{KeyLine, NEVER};
use crate::redis::rules::Rules;
use crate::redis::script::policies::Scripted;
use crate::units::Nanos;

impl<P: Scripted> KeyLine<P> {
    /// When what is held must be renewed, if Redis heard of it at `heard`.
    pub(super) fn renewal(&self, rules: &Rules<P>, heard: Nanos) -> Nanos {
        let holds = self.held.iter().any(|&held| held > 0);
        if holds { heard.saturating_add(rules.options.lease / 3) } else { NEVER }
    }

    /// Who asks, how much it holds, and how long that is to count without another word.
    pub(super) fn lease(&self, rules: &Rules<P>) -> Vec<u8> {
        let mut bytes = rules.id.to_vec();
        for &number in &rules.scripts.held {
            #[allow(clippy::cast_precision_loss)] // nobody holds 2^53 places
            let held = self.held.get(number).copied().unwrap_or_default() as f64;
            bytes.extend(held.to_le_bytes());
        }
        #[allow(clippy::cast_precision_loss)]
        bytes.extend((rules.options.lease.as_micros() as f64).to_le_bytes());
        bytes
    }

    pub(crate) fn hold(&mut self, cost: P::Cost) {
        if P::HELD {
            self.count_held(cost, u64::saturating_add);
        }
    }

    /// Places in flight have come back.
    pub(crate) fn let_go(&mut self, cost: P::Cost) {
        if P::HELD {
            self.count_held(cost, |held, number| held.saturating_sub(number));
            self.released = true;
            self.ask_again();
        }
    }

    fn count_held(&mut self, cost: P::Cost, count: impl Fn(u64, u64) -> u64) {
        let mut numbers = Vec::new();
        P::write_cost(cost, &mut numbers);
        self.held.resize(numbers.len(), 0);
        for (held, number) in self.held.iter_mut().zip(numbers) {
            *held = count(*held, u64::from(number));
        }
    }
}
