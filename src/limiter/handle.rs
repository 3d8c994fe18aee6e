//! How a caller keeps its limiter until it has its grant.

/// How a caller keeps a limiter.
pub trait Handle<L>: From<L> {
    /// The limiter.
    ///
    /// # Panics
    ///
    /// If a grant has taken it over.
    fn get(&self) -> &L;

    /// Takes it out.
    ///
    /// # Panics
    ///
    /// If a grant has taken it over.
    fn take(&mut self) -> L;
}

const TAKEN: &str = "`Acquire` used after it was ready";

impl<L> Handle<L> for Option<L> {
    #[track_caller]
    fn get(&self) -> &L {
        self.as_ref().expect(TAKEN)
    }

    #[track_caller]
    fn take(&mut self) -> L {
        self.take().expect(TAKEN)
    }
}

/// A borrow, which is always there: a call that need not wait does not pay for an `Option`.
#[derive(Debug)]
pub struct Borrowed<L>(L);

impl<L> From<L> for Borrowed<L> {
    #[inline(always)]
    fn from(limiter: L) -> Self {
        Self(limiter)
    }
}

impl<L: Copy> Handle<L> for Borrowed<L> {
    #[inline(always)]
    fn get(&self) -> &L {
        &self.0
    }

    #[inline(always)]
    fn take(&mut self) -> L {
        self.0
    }
}
