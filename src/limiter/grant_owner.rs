//! The source of a grant's permits: a line, or a key without waiters.

use std::mem::{self, ManuallyDrop};
use std::sync::Arc;

use super::shared::Shared;
use crate::error::Error;
use crate::line::Change;
use crate::policy::{Policy, Quota};

/// The source of a grant's permits. A call that is decided at once borrows it, so that it counts no reference.
// Dropped by hand: dropping a borrow does nothing, but the compiler calls the drop of this enum as a
// function, which takes a quarter of the time of a call.
pub(crate) struct GrantOwner<'a, P: Policy>(ManuallyDrop<Kind<'a, P>>);

enum Kind<'a, P: Policy> {
    Borrowed(&'a Arc<Shared<P>>),
    Owned(Arc<Shared<P>>),
    /// A key without waiters.
    Key(KeyGuard<'a, P>),
    Dropped,
}

/// A table of keys.
pub(crate) trait Keys<P: Policy>: Send + Sync {
    fn change(&self, place: EntryRef, change: Change<P>) -> Result<Option<P::Receipt>, Error>;

    /// `None` if the key is no longer in the table.
    fn quota(&self, place: EntryRef) -> Option<Quota<P::Cost>>;

    fn pin(&self, place: EntryRef);

    fn unpin(&self, place: EntryRef);

    fn share(&self) -> Arc<dyn Keys<P>>;
}

/// A reference to an entry in a table of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryRef {
    pub(crate) hash: u64,
    pub(crate) id: u32,
    /// The last known place of the entry.
    pub(crate) hint: usize,
}

/// Keeps a key in the table as long as a grant can be settled.
pub(crate) struct KeyGuard<'a, P: Policy> {
    keys: KeysHandle<'a, P>,
    place: EntryRef,
}

enum KeysHandle<'a, P: Policy> {
    Borrowed(&'a dyn Keys<P>),
    Owned(Arc<dyn Keys<P>>),
}

impl<'a, P: Policy> KeyGuard<'a, P> {
    /// The entry must have been pinned.
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

    /// The line, if the source is one.
    #[inline]
    pub(super) fn line(&self) -> Option<&Shared<P>> {
        match &*self.0 {
            Kind::Borrowed(line) => Some(line),
            Kind::Owned(line) => Some(line),
            Kind::Key(_) | Kind::Dropped => None,
        }
    }

    /// Moves the source out.
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

    /// Called when the grant is dropped.
    #[inline(always)]
    pub(super) fn release(&self, cost: P::Cost) {
        // A key with a place in flight has a line.
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
    // Inlined for the reason given at `Line::decide`.
    #[inline(always)]
    fn drop(&mut self) {
        if !matches!(*self.0, Kind::Borrowed(_)) {
            self.drop_what_is_owned();
        }
    }
}
