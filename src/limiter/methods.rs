//! Macros: the methods that a limiter or a grant has without a trait in scope.

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
#[cfg(any(feature = "feedback", feature = "redis"))]
macro_rules! methods_of_limiter {
    () => {
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
}
#[cfg(any(feature = "feedback", feature = "redis"))]
pub(crate) use methods_of_limiter;
