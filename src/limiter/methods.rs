//! Macros: the methods that each limiter and each grant has without a trait in scope.

/// Forwards to methods of a trait: `in Trait { async fn name(argument: Type) -> Answer; }`.
macro_rules! forward {
    (in $of:path { $($(#[$meta:meta])* $(@$is_async:ident)? $name:ident($($what:ident: $kind:ty),*) -> $answer:ty;)* }) => {
        $(crate::limiter::forward! { @one $of, $(#[$meta])* $(@$is_async)? $name($($what: $kind),*) -> $answer })*
    };
    (@one $of:path, $(#[$meta:meta])* @async $name:ident($($what:ident: $kind:ty),*) -> $answer:ty) => {
        $(#[$meta])*
        pub async fn $name(&self, $($what: $kind),*) -> $answer {
            <Self as $of>::$name(self, $($what),*).await
        }
    };
    (@one $of:path, $(#[$meta:meta])* $name:ident($($what:ident: $kind:ty),*) -> $answer:ty) => {
        $(#[$meta])*
        pub fn $name(&self, $($what: $kind),*) -> $answer {
            <Self as $of>::$name(self, $($what),*)
        }
    };
}
pub(crate) use forward;

/// Methods of [`Limiter`](crate::Limiter) as methods of the type, so that a program that knows its limiter imports no trait.
macro_rules! methods_of_limiter {
    // Those that a limiter with other calls takes as well.
    (around_calls) => {
        /// See [`Limiter::and`](crate::Limiter::and).
        pub fn and<Other>(&self, second: &Other) -> crate::And<Self, Other>
        where
            Self: crate::OwnedLimiter,
            Other: crate::OwnedLimiter<Cost = <Self as crate::Queue>::Cost>,
        {
            crate::Limiter::and(self, second)
        }

        /// See [`Limiter::run`](crate::Limiter::run). The future may be one of this thread only.
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

        /// See [`Limiter::run_metered`](crate::Limiter::run_metered). The future may be one of this thread only.
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

        crate::limiter::forward! {
            in crate::Limiter {
                /// See [`Limiter::close`](crate::Limiter::close).
                close() -> ();
                /// See [`Limiter::drain`](crate::Limiter::drain).
                @async drain() -> ();
                /// See [`Limiter::is_closed`](crate::Limiter::is_closed).
                #[must_use]
                is_closed() -> bool;
            }
        }
    };
    () => {
        crate::limiter::methods_of_limiter!(around_calls);

        /// See [`Limiter::acquire_for`](crate::Limiter::acquire_for).
        pub fn acquire_for<Tenant: std::hash::Hash + ?Sized>(
            &self,
            tenant: &Tenant,
            n: <Self as crate::Queue>::Cost,
        ) -> crate::Acquire<Self> {
            crate::Limiter::acquire_for(self, tenant, n)
        }

        crate::limiter::forward! {
            in crate::Limiter {
                /// Takes `n` permits, and waits until they are granted; see [`Limiter::acquire`](crate::Limiter::acquire).
                acquire(n: <Self as crate::Queue>::Cost) -> crate::Acquire<Self>;

                /// See [`Limiter::try_acquire`](crate::Limiter::try_acquire).
                try_acquire(n: <Self as crate::Queue>::Cost) -> crate::Acquire<Self>;

                /// See [`Limiter::try_acquire_timeout`](crate::Limiter::try_acquire_timeout).
                try_acquire_timeout(n: <Self as crate::Queue>::Cost, timeout: std::time::Duration) -> crate::Acquire<Self>;

                /// See [`Limiter::reserve`](crate::Limiter::reserve).
                ///
                /// # Errors
                ///
                /// Those of `acquire`.
                @async reserve(n: <Self as crate::Queue>::Cost)
                    -> Result<crate::Reservation<<Self as crate::Queue>::Owned>, crate::Error>;

                /// See [`Limiter::blocking_acquire`](crate::Limiter::blocking_acquire).
                ///
                /// # Errors
                ///
                /// Those of `acquire`.
                blocking_acquire(n: <Self as crate::Queue>::Cost) -> Result<<Self as crate::Queue>::Grant, crate::Error>;
            }
        }
    };
}
pub(crate) use methods_of_limiter;

/// Methods of [`Granted`](crate::Granted) as methods of the type.
macro_rules! methods_of_granted {
    () => {
        /// Corrects the cost once the true one is known; see [`Granted::settle`](crate::Granted::settle).
        pub fn settle(
            &mut self,
            actual: <Self as crate::Granted>::Cost,
        ) -> crate::Settle<'_, Self> {
            crate::Granted::settle(self, actual)
        }

        crate::limiter::forward! {
            in crate::Granted {
                /// The permits that were granted; after [`settle`](Self::settle) the corrected number.
                #[must_use]
                cost() -> <Self as crate::Granted>::Cost;

                /// How long the call waited; see [`Grant::waited`](crate::Grant::waited).
                #[must_use]
                waited() -> std::time::Duration;

                /// The rule that made the call wait; see [`Grant::limited_by`](crate::Grant::limited_by).
                #[must_use]
                limited_by() -> Option<crate::Part>;
            }
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
