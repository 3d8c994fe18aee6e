//! Where permits come from: a line, or a key at which no caller waits.

use std::mem::{self, ManuallyDrop};
use std::sync::Arc;

use super::shared::Shared;
use crate::error::Error;
use crate::line::Change;
use crate::policy::{Policy, Quota};

/// Where permits come from: on the way at once a borrow, so that no reference is counted.
// Dropped by hand, because dropping a borrow has nothing to do: the drop of an enum that may be one is
// out of line, and takes a quarter of a call.
pub(crate) struct GrantOwner<'a, P: Policy>(ManuallyDrop<Kind<'a, P>>);

enum Kind<'a, P: Policy> {
    Borrowed(&'a Arc<Shared<P>>),
    Owned(Arc<Shared<P>>),
    /// A key in whose line nobody waits.
    Key(KeyGuard<'a, P>),
    Dropped,
}

/// A table of keys.
pub(crate) trait Keys<P: Policy>: Send + Sync {
    fn change(&self, place: EntryRef, change: Change<P>) -> Result<Option<P::Receipt>, Error>;

    /// `None` if the key is no longer there.
    fn quota(&self, place: EntryRef) -> Option<Quota<P::Cost>>;

    fn pin(&self, place: EntryRef);

    fn unpin(&self, place: EntryRef);

    fn share(&self) -> Arc<dyn Keys<P>>;
}

/// Which entry of a table of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryRef {
    pub(crate) hash: u64,
    pub(crate) id: u32,
    /// Where it was last.
    pub(crate) hint: usize,
}

/// Keeps a key from being forgotten for as long as a grant can be settled.
pub(crate) struct KeyGuard<'a, P: Policy> {
    keys: KeysHandle<'a, P>,
    place: EntryRef,
}

enum KeysHandle<'a, P: Policy> {
    Borrowed(&'a dyn Keys<P>),
    Owned(Arc<dyn Keys<P>>),
}

impl<'a, P: Policy> KeyGuard<'a, P> {
    /// For an entry that has been pinned.
    pub(crate) fn new(keys: &'a dyn Keys<P>, place: EntryRef) -> Self {
        Self { keys: KeysHandle::Borrowed(keys), place }
    }

    fn keys(&self) -> &dyn Keys<P> {
        match &self.keys {
            KeysHandle::Borrowed(keys) => *keys,
            KeysHandle::Owned(keys) => &**keys,
        }
    }

    fn to_owned(&self) -> KeyGuard<'static, P> {
        let keys = self.keys().share();
        keys.pin(self.place);
        KeyGuard { keys: KeysHandle::Owned(keys), place: self.place }
    }
}

impl<P: Policy> Drop for KeyGuard<'_, P> {
    fn drop(&mut self) {
        self.keys().unpin(self.place);
    }
}

impl<'a, P: Policy> GrantOwner<'a, P> {
    #[inline]
    pub(super) fn borrowed(line: &'a Arc<Shared<P>>) -> Self {
        Self(ManuallyDrop::new(Kind::Borrowed(line)))
    }

    pub(crate) fn owned(line: Arc<Shared<P>>) -> Self {
        Self(ManuallyDrop::new(Kind::Owned(line)))
    }

    pub(crate) fn key(pin: KeyGuard<'a, P>) -> Self {
        Self(ManuallyDrop::new(Kind::Key(pin)))
    }

    #[inline]
    pub(super) fn as_borrowed(&self) -> Option<&'a Arc<Shared<P>>> {
        match *self.0 {
            Kind::Borrowed(line) => Some(line),
            _ => None,
        }
    }

    /// The line, if it is one.
    #[inline]
    pub(super) fn line(&self) -> Option<&Shared<P>> {
        match &*self.0 {
            Kind::Borrowed(line) => Some(line),
            Kind::Owned(line) => Some(line),
            Kind::Key(_) | Kind::Dropped => None,
        }
    }

    /// Moves it out.
    pub(super) fn take(&mut self) -> Self {
        Self(mem::replace(&mut self.0, ManuallyDrop::new(Kind::Dropped)))
    }

    fn pin(&self) -> &KeyGuard<'a, P> {
        match &*self.0 {
            Kind::Key(pin) => pin,
            _ => unreachable!("a grant has a line or a key"),
        }
    }

    pub(super) fn quota(&self) -> Quota<P::Cost> {
        self.line().map_or_else(
            || {
                let quota = self.pin().keys().quota(self.pin().place);
                quota.unwrap_or_else(|| unreachable!("the key is pinned"))
            },
            Shared::quota,
        )
    }

    pub(super) fn change(&self, change: Change<P>) -> Result<Option<P::Receipt>, Error> {
        match self.line() {
            Some(line) => line.change(change),
            None => self.pin().keys().change(self.pin().place, change),
        }
    }

    /// Its grant has been dropped.
    #[inline(always)]
    pub(super) fn release(&self, cost: P::Cost) {
        // Who holds a place in flight at a key has a line there.
        if let Some(line) = self.line() {
            line.release(cost);
        }
    }

    pub(super) fn to_owned(&self) -> GrantOwner<'static, P> {
        GrantOwner(ManuallyDrop::new(match &*self.0 {
            Kind::Borrowed(line) => Kind::Owned(Arc::clone(line)),
            Kind::Owned(line) => Kind::Owned(Arc::clone(line)),
            Kind::Key(pin) => Kind::Key(pin.to_owned()),
            Kind::Dropped => Kind::Dropped,
        }))
    }

    #[inline(never)]
    fn drop_what_is_owned(&mut self) {
        let kind = mem::replace(&mut self.0, ManuallyDrop::new(Kind::Dropped));
        drop(ManuallyDrop::into_inner(kind));
    }
}

impl<P: Policy> Drop for GrantOwner<'_, P> {
    // As `Line::decide`.
    #[inline(always)]
    fn drop(&mut self) {
        if !matches!(*self.0, Kind::Borrowed(_)) {
            self.drop_what_is_owned();
        }
    }
}
