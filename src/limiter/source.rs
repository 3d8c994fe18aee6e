//! Where the permits of a grant came from: a line, or a key at which nobody waits.

use std::sync::Arc;

use super::shared::Handle;
use crate::error::Error;
use crate::line::Change;
use crate::policy::{Policy, Quota};

/// Where permits came from.
pub(crate) enum Source<'a, P: Policy> {
    Line(Handle<'a, P>),
    /// A key in whose line nobody waits.
    Key(Pin<'a, P>),
}

/// A table of keys.
pub(crate) trait Keys<P: Policy>: Send + Sync {
    fn change(&self, place: Place, change: Change<P>) -> Result<Option<P::Receipt>, Error>;

    /// `None` if the key is no longer there.
    fn quota(&self, place: Place) -> Option<Quota<P::Cost>>;

    fn pin(&self, place: Place);

    fn unpin(&self, place: Place);

    fn share(&self) -> Arc<dyn Keys<P>>;
}

/// Which entry of a table of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) hash: u64,
    pub(crate) id: u32,
    /// Where it was last.
    pub(crate) hint: usize,
}

/// Keeps a key from being forgotten for as long as a grant can be settled.
pub(crate) struct Pin<'a, P: Policy> {
    keys: KeysHandle<'a, P>,
    place: Place,
}

enum KeysHandle<'a, P: Policy> {
    Borrowed(&'a dyn Keys<P>),
    Owned(Arc<dyn Keys<P>>),
}

impl<'a, P: Policy> Pin<'a, P> {
    /// For an entry that has been pinned.
    pub(crate) fn new(keys: &'a dyn Keys<P>, place: Place) -> Self {
        Self { keys: KeysHandle::Borrowed(keys), place }
    }

    fn keys(&self) -> &dyn Keys<P> {
        match &self.keys {
            KeysHandle::Borrowed(keys) => *keys,
            KeysHandle::Owned(keys) => &**keys,
        }
    }

    fn to_owned(&self) -> Pin<'static, P> {
        let keys = self.keys().share();
        keys.pin(self.place);
        Pin { keys: KeysHandle::Owned(keys), place: self.place }
    }
}

impl<P: Policy> Drop for Pin<'_, P> {
    fn drop(&mut self) {
        self.keys().unpin(self.place);
    }
}

impl<P: Policy> Source<'_, P> {
    pub(super) fn quota(&self) -> Quota<P::Cost> {
        match self {
            Self::Line(line) => line.quota(),
            Self::Key(pin) => {
                let quota = pin.keys().quota(pin.place);
                quota.unwrap_or_else(|| unreachable!("the key is pinned"))
            }
        }
    }

    pub(super) fn change(&self, change: Change<P>) -> Result<Option<P::Receipt>, Error> {
        match self {
            Self::Line(line) => line.change(change),
            Self::Key(pin) => pin.keys().change(pin.place, change),
        }
    }

    pub(super) fn release(&self, cost: P::Cost) {
        // Who holds a place in flight at a key has a line there.
        if let Self::Line(line) = self {
            line.touch(|inner, now| inner.release(now, cost));
        }
    }

    pub(super) fn to_owned(&self) -> Source<'static, P> {
        match self {
            Self::Line(line) => Source::Line(line.to_owned()),
            Self::Key(pin) => Source::Key(pin.to_owned()),
        }
    }
}
