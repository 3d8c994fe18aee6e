//! The source of a grant's permits: a line, or a key without waiters.

use std::mem::{self, ManuallyDrop};
use std::sync::Arc;

use super::open_grant::{GrantId, OpenGrant};
use crate::error::ExceedsCapacity;
use crate::line::{Change, Inner, Line};
use crate::policy::{Policy, Quota};
use crate::unwinding::in_drop;

/// The source of a grant's permits. A call that is decided at once borrows it, so that it counts no reference.
// Dropped by hand: dropping a borrow does nothing, but the compiler calls the drop of this enum as a
// function, which takes a quarter of the time of a call.
pub(crate) struct GrantOwner<'a, P: Policy>(ManuallyDrop<Kind<'a, P>>);

enum Kind<'a, P: Policy> {
    Borrowed(&'a Arc<Line<P>>),
    Owned(Arc<Line<P>>),
    /// A key without waiters.
    Key(KeyGuard<'a, P>),
    Dropped,
}

/// A table of keys.
pub(crate) trait Keys<P: Policy>: Send + Sync {
    /// The limiter of the key of a grant that is kept.
    fn line(&self, id: GrantId) -> Option<Arc<Line<P>>>;

    /// The grant can no longer be settled.
    fn close(&self, id: GrantId);

    fn share(&self) -> Arc<dyn Keys<P>>;
}

/// Keeps a key in the table as long as a grant can be settled. Its owner closes the grant.
pub(crate) struct KeyGuard<'a, P: Policy> {
    keys: KeysHandle<'a, P>,
    id: GrantId,
}

enum KeysHandle<'a, P: Policy> {
    Borrowed { keys: &'a dyn Keys<P>, open: &'a OpenGrant },
    Owned(Arc<dyn Keys<P>>),
}

impl<'a, P: Policy> KeyGuard<'a, P> {
    /// The grant must have been opened.
    #[inline]
    pub(crate) fn new(keys: &'a dyn Keys<P>, open: &'a OpenGrant, id: GrantId) -> Self {
        Self { keys: KeysHandle::Borrowed { keys, open }, id }
    }

    fn keys(&self) -> &dyn Keys<P> {
        match &self.keys {
            KeysHandle::Borrowed { keys, .. } => *keys,
            KeysHandle::Owned(keys) => &**keys,
        }
    }

    /// Closes the grant, if it was the last one of its shard. Returns whether it did; nothing is left to drop then.
    #[inline(always)]
    fn close_at_once(&self) -> bool {
        matches!(&self.keys, KeysHandle::Borrowed { open, .. } if open.close(self.id))
    }

    fn close(&self) {
        self.keys().close(self.id);
    }

    fn into_owned(self) -> KeyGuard<'static, P> {
        let keys = match self.keys {
            KeysHandle::Borrowed { keys, .. } => keys.share(),
            KeysHandle::Owned(keys) => keys,
        };
        KeyGuard { keys: KeysHandle::Owned(keys), id: self.id }
    }
}

impl<'a, P: Policy> GrantOwner<'a, P> {
    #[inline]
    pub(super) fn borrowed(line: &'a Arc<Line<P>>) -> Self {
        Self(ManuallyDrop::new(Kind::Borrowed(line)))
    }

    pub(crate) fn owned(line: Arc<Line<P>>) -> Self {
        Self(ManuallyDrop::new(Kind::Owned(line)))
    }

    #[inline]
    pub(crate) fn key(pin: KeyGuard<'a, P>) -> Self {
        Self(ManuallyDrop::new(Kind::Key(pin)))
    }

    /// The line, if the source is one.
    #[inline]
    pub(super) fn line(&self) -> Option<&Line<P>> {
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

    /// Uses the line. A key gets one now, if it has none.
    fn with_line<R>(&self, act: impl FnOnce(&Line<P>) -> R) -> R {
        match &*self.0 {
            Kind::Borrowed(line) => act(line),
            Kind::Owned(line) => act(line),
            Kind::Key(guard) => match guard.keys().line(guard.id) {
                Some(line) => act(&line),
                None => unreachable!("the grant keeps its key"),
            },
            Kind::Dropped => unreachable!("a grant has a line or a key"),
        }
    }

    pub(super) fn quota(&self) -> Quota<P::Cost> {
        self.with_line(|line| line.look(Inner::quota))
    }

    pub(super) fn change(&self, change: &Change<P>) -> Result<Option<P::Receipt>, ExceedsCapacity> {
        self.with_line(|line| line.change(change))
    }

    /// Called when the grant is dropped.
    #[inline(always)]
    pub(super) fn release(&self, cost: P::Cost) {
        // A key with a place in flight has a line.
        if let Some(line) = self.line() {
            line.release(cost);
        }
    }

    pub(super) fn into_owned(mut self) -> GrantOwner<'static, P> {
        let kind = mem::replace(&mut self.0, ManuallyDrop::new(Kind::Dropped));
        GrantOwner(ManuallyDrop::new(match ManuallyDrop::into_inner(kind) {
            Kind::Borrowed(line) => Kind::Owned(Arc::clone(line)),
            Kind::Owned(line) => Kind::Owned(line),
            Kind::Key(guard) => Kind::Key(guard.into_owned()),
            Kind::Dropped => Kind::Dropped,
        }))
    }

    #[inline(never)]
    fn drop_what_is_owned(&mut self) {
        let kind = mem::replace(&mut self.0, ManuallyDrop::new(Kind::Dropped));
        let kind = ManuallyDrop::into_inner(kind);
        if let Kind::Key(guard) = &kind {
            in_drop(|| guard.close());
        }
        drop(kind);
    }
}

impl<P: Policy> Drop for GrantOwner<'_, P> {
    // Inlined for the reason given at `Line::decide`.
    #[inline(always)]
    fn drop(&mut self) {
        match &*self.0 {
            Kind::Borrowed(_) => {}
            Kind::Key(guard) if guard.close_at_once() => {}
            _ => self.drop_what_is_owned(),
        }
    }
}
