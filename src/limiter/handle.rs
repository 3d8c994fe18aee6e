//! How a caller keeps its limiter until it has its grant.

/// A limiter that is kept.
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

/// What a limiter that lends another one, whose place it has, or lends itself, answers as the borrow does.
macro_rules! queue_by_borrow {
    (|$limiter:ident| $borrow:expr => $Borrow:ty) => {
        fn poll_enter(
            limiter: &mut Self::Handle,
            ask: &crate::limiter::Ask<Self::Cost>,
            place: &mut Self::Place,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), crate::Error>> {
            let $limiter = limiter.get();
            <$Borrow>::poll_enter(&mut $borrow.into(), ask, place, context)
        }

        fn leave(
            limiter: &Self::Handle,
            ask: &crate::limiter::Ask<Self::Cost>,
            place: &mut Self::Place,
        ) {
            if let Some($limiter) = limiter {
                <$Borrow>::leave(&$borrow.into(), ask, place);
            }
        }

        fn delay(limiter: &Self::Handle, place: &Self::Place) -> std::time::Duration {
            let $limiter = limiter.get();
            <$Borrow>::delay(&$borrow.into(), place)
        }

        fn into_owned(limiter: &mut Self::Handle, place: Self::Place) -> (Self, Self::Place) {
            (crate::limiter::Handle::take(limiter), place)
        }
    };
}
pub(crate) use queue_by_borrow;
