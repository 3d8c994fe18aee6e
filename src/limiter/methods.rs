//! Macros: the methods that each limiter and each grant has without a trait in scope.

/// Methods of [`Limiter`](crate::Limiter) as methods of the type, so that a program that knows its limiter imports no trait.
macro_rules! methods_of_limiter {
    // Those that a limiter with other calls takes as well.
    (around_calls) => {
        /// One limiter of this one and `second`, which both have to grant a call; see
        /// [`Limiter::and`](crate::Limiter::and).
        pub fn and<Other>(&self, second: &Other) -> crate::And<Self, Other>
        where
            Self: crate::OwnedLimiter,
            Other: crate::OwnedLimiter<Cost = <Self as crate::Queue>::Cost>,
        {
            crate::Limiter::and(self, second)
        }

        /// Refuses waiters and later calls; see [`Limiter::close`](crate::Limiter::close).
        pub fn close(&self) {
            crate::Limiter::close(self);
        }

        /// Refuses new callers and serves the queue; see [`Limiter::drain`](crate::Limiter::drain).
        pub async fn drain(&self) {
            crate::Limiter::drain(self).await;
        }

        /// Whether new callers get [`Error::Closed`](crate::Error::Closed).
        #[must_use]
        pub fn is_closed(&self) -> bool {
            crate::Limiter::is_closed(self)
        }

        /// Takes `n` permits, runs `future`, and gives places in flight back at its end; see
        /// [`Limiter::run`](crate::Limiter::run). The future may be one of this thread only.
        ///
        /// # Errors
        ///
        /// Those of `acquire`.
        pub async fn run<F: Future>(
            &self,
            n: <Self as crate::Queue>::Cost,
            future: F,
        ) -> Result<F::Output, crate::Error> {
            crate::limiter::run::run(self, n, future).await
        }

        /// As [`run`](Self::run), and settles the cost by the output; see
        /// [`Limiter::run_metered`](crate::Limiter::run_metered).
        ///
        /// # Errors
        ///
        /// Those of `acquire`.
        pub async fn run_metered<F: Future>(
            &self,
            n: <Self as crate::Queue>::Cost,
            future: F,
            cost_of: impl FnOnce(&F::Output) -> <Self as crate::Queue>::Cost,
        ) -> Result<F::Output, crate::Error> {
            crate::limiter::run::run_metered(self, n, future, cost_of).await
        }

        /// As [`run`](Self::run), for threads; see [`Limiter::blocking_run`](crate::Limiter::blocking_run).
        ///
        /// # Errors
        ///
        /// Those of `acquire`.
        pub fn blocking_run<R>(
            &self,
            n: <Self as crate::Queue>::Cost,
            act: impl FnOnce() -> R,
        ) -> Result<R, crate::Error> {
            crate::Limiter::blocking_run(self, n, act)
        }

        /// As [`run_metered`](Self::run_metered), for threads; see
        /// [`Limiter::blocking_run_metered`](crate::Limiter::blocking_run_metered).
        ///
        /// # Errors
        ///
        /// Those of `acquire`.
        pub fn blocking_run_metered<R>(
            &self,
            n: <Self as crate::Queue>::Cost,
            act: impl FnOnce() -> R,
            cost_of: impl FnOnce(&R) -> <Self as crate::Queue>::Cost,
        ) -> Result<R, crate::Error> {
            crate::Limiter::blocking_run_metered(self, n, act, cost_of)
        }
    };
    () => {
        crate::limiter::methods_of_limiter!(around_calls);

        /// Takes `n` permits, and waits until they are granted; see
        /// [`Limiter::acquire`](crate::Limiter::acquire).
        pub fn acquire(&self, n: <Self as crate::Queue>::Cost) -> crate::Acquire<Self> {
            crate::Limiter::acquire(self, n)
        }

        /// As [`acquire`](Self::acquire), in the turn of one of many tenants; see
        /// [`Limiter::acquire_for`](crate::Limiter::acquire_for).
        pub fn acquire_for<Tenant: std::hash::Hash + ?Sized>(
            &self,
            tenant: &Tenant,
            n: <Self as crate::Queue>::Cost,
        ) -> crate::Acquire<Self> {
            crate::Limiter::acquire_for(self, tenant, n)
        }

        /// Takes `n` permits if they are ready and the queue is empty; see
        /// [`Limiter::try_acquire`](crate::Limiter::try_acquire).
        pub fn try_acquire(&self, n: <Self as crate::Queue>::Cost) -> crate::Acquire<Self> {
            crate::Limiter::try_acquire(self, n)
        }

        /// Takes `n` permits if they come within `timeout`, and fails at once if they cannot; see
        /// [`Limiter::try_acquire_timeout`](crate::Limiter::try_acquire_timeout).
        pub fn try_acquire_timeout(
            &self,
            n: <Self as crate::Queue>::Cost,
            timeout: std::time::Duration,
        ) -> crate::Acquire<Self> {
            crate::Limiter::try_acquire_timeout(self, n, timeout)
        }

        /// Joins the queue without waiting for the grant; see [`Limiter::reserve`](crate::Limiter::reserve).
        ///
        /// # Errors
        ///
        /// Those of `acquire`.
        pub async fn reserve(
            &self,
            n: <Self as crate::Queue>::Cost,
        ) -> Result<crate::Reservation<<Self as crate::Queue>::Owned>, crate::Error> {
            crate::Limiter::reserve(self, n).await
        }

        /// As `acquire`, for threads; see [`Limiter::blocking_acquire`](crate::Limiter::blocking_acquire).
        ///
        /// # Errors
        ///
        /// Those of `acquire`.
        pub fn blocking_acquire(
            &self,
            n: <Self as crate::Queue>::Cost,
        ) -> Result<<Self as crate::Queue>::Grant, crate::Error> {
            crate::Limiter::blocking_acquire(self, n)
        }

        /// As `try_acquire_timeout`, for threads; see
        /// [`Limiter::blocking_try_acquire_timeout`](crate::Limiter::blocking_try_acquire_timeout).
        ///
        /// # Errors
        ///
        /// Those of `try_acquire_timeout`.
        pub fn blocking_try_acquire_timeout(
            &self,
            n: <Self as crate::Queue>::Cost,
            timeout: std::time::Duration,
        ) -> Result<<Self as crate::Queue>::Grant, crate::Error> {
            crate::Limiter::blocking_try_acquire_timeout(self, n, timeout)
        }

        /// As `try_acquire`, for threads; see
        /// [`Limiter::blocking_try_acquire`](crate::Limiter::blocking_try_acquire).
        ///
        /// # Errors
        ///
        /// Those of `try_acquire`.
        pub fn blocking_try_acquire(
            &self,
            n: <Self as crate::Queue>::Cost,
        ) -> Result<<Self as crate::Queue>::Grant, crate::Error> {
            crate::Limiter::blocking_try_acquire(self, n)
        }

        /// As `reserve`, for threads; see [`Limiter::blocking_reserve`](crate::Limiter::blocking_reserve).
        ///
        /// # Errors
        ///
        /// Those of `reserve`.
        pub fn blocking_reserve(
            &self,
            n: <Self as crate::Queue>::Cost,
        ) -> Result<crate::Reservation<<Self as crate::Queue>::Owned>, crate::Error> {
            crate::Limiter::blocking_reserve(self, n)
        }
    };
}
pub(crate) use methods_of_limiter;

/// Methods of [`Granted`](crate::Granted) as methods of the type. A settlement `in_process` is not waited for.
macro_rules! methods_of_granted {
    () => {
        crate::limiter::methods_of_granted!(but_settle);

        /// Corrects the cost once the true one is known; see [`Granted::settle`](crate::Granted::settle).
        pub fn settle(
            &mut self,
            actual: <Self as crate::Granted>::Cost,
        ) -> crate::Settle<'_, Self> {
            crate::Granted::settle(self, actual)
        }
    };
    (in_process) => {
        crate::limiter::methods_of_granted!(but_settle);

        /// Corrects the cost once the true one is known; see [`Grant::settle`](crate::Grant::settle).
        ///
        /// # Errors
        ///
        /// Those of [`Grant::settle`](crate::Grant::settle).
        pub fn settle(
            &mut self,
            actual: <Self as crate::Granted>::Cost,
        ) -> Result<(), crate::Error> {
            crate::Granted::send_settlement(self, actual)
        }
    };
    (but_settle) => {
        /// The permits that were granted; after [`settle`](Self::settle) the corrected number.
        #[must_use]
        pub fn cost(&self) -> <Self as crate::Granted>::Cost {
            crate::Granted::cost(self)
        }

        /// How long the call waited; see [`Grant::waited`](crate::Grant::waited).
        #[must_use]
        pub fn waited(&self) -> std::time::Duration {
            crate::Granted::waited(self)
        }

        /// The rule that made the call wait; see [`Grant::limited_by`](crate::Grant::limited_by).
        #[must_use]
        pub fn limited_by(&self) -> Option<crate::Part> {
            crate::Granted::limited_by(self)
        }

        /// Gives the permits back; see [`Grant::refund`](crate::Grant::refund).
        pub fn refund(self) {
            crate::Granted::refund(self);
        }

        /// The grant, settled when it is dropped; see [`Grant::metered`](crate::Grant::metered).
        #[must_use]
        pub fn metered(self) -> crate::Metered<Self> {
            crate::Granted::metered(self)
        }
    };
}
pub(crate) use methods_of_granted;
