//! How many calls may be under way at a server that refuses without saying why: one after the refusal, one more
//! for each that it takes, from half of what it did not take on one more for each round. As TCP begins slowly.

#[derive(Clone, Copy, Debug)]
pub(super) struct Trust {
    pub(super) most: u64,
    /// From here on it grows by one for each `most` calls.
    threshold: u64,
    taken: u64,
}

/// From this number at a time there is no limit any more.
const ENOUGH: u64 = 4096;

impl Trust {
    /// A server refused a call, although it did not say that nothing remains, while `flying` were under way.
    pub(super) fn after_refusal(flying: u64) -> Self {
        Self { most: 1, threshold: (flying / 2).max(1), taken: 0 }
    }

    /// The server took a call.
    pub(super) fn grow(mut self) -> Option<Self> {
        if self.most < self.threshold {
            self.most += 1;
        } else {
            self.taken += 1;
            if self.taken >= self.most {
                (self.most, self.taken) = (self.most + 1, 0);
            }
        }
        Some(self).filter(|trust| trust.most < ENOUGH)
    }
}
