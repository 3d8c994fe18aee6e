//! The pages of `docs`: which policy to take, what the methods do, clients and servers, files, operations, tests, Redis, why
//! things are as they are, and the way over from other rate limiters.

/// The package `tests` compiles the code of these pages. Their links are relative; the first definition of a link counts,
/// so `links.md` leads to the modules instead.
macro_rules! pages {
    ($($(#[$title:meta])* $name:ident = $page:literal;)*) => {
        $(
            $(#[$title])*
            ///
            #[doc = include_str!("guide/links.md")]
            #[doc = include_str!(concat!("../docs/", $page))]
            pub mod $name {}
        )*
    };
}

/// Which policy to take, with the same calls through each of them.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/pictures/urls.md")]
#[doc = include_str!("../docs/choosing.md")]
pub mod choosing {}

/// reqwest, tower, limits that are learned from headers, and unknown quotas.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/pictures/learner/url.md")]
#[doc = include_str!("../docs/http.md")]
pub mod http {}

pages! {
    /// The methods of every limiter, the grant, changes, bounds, keys and errors.
    methods = "methods.md";
    /// Which limiter can do what.
    abilities = "abilities.md";
    /// What is promised, and which test holds it.
    guarantees = "guarantees.md";
    /// What the crate does not do, and what to do instead.
    limits = "limits.md";
    /// Which fields rate limiters of others send, and how much of their quotas a client uses.
    servers = "servers.md";
    /// What to write for reqwest, ureq, hyper-util, tonic, octocrab, kube, async-openai and others.
    clients = "clients.md";
    /// Limits as text, by name, and from a file.
    config = "config.md";
    /// What to watch, what a limiter costs, overload and shutdown.
    operations = "operations.md";
    /// Tests that take no time.
    testing = "testing.md";
    /// How a fleet shares a limit, and what each fault costs.
    redis = "redis.md";
    /// Which crate for which layer, and how to come from another one.
    comparison = "comparison.md";
    /// Why things are as they are.
    design = "design.md";
    /// Profiles and experiments behind the [`design`].
    measurements = "measurements.md";
}

/// The way over from other rate limiters: names side by side, and what differs.
pub mod from {
    pages! {
        /// Bucket4j, of Java.
        bucket4j = "from/bucket4j.md";
        /// governor.
        governor = "from/governor.md";
        /// Guava's `RateLimiter`, of Java.
        guava = "from/guava.md";
        /// leaky-bucket.
        leaky_bucket = "from/leaky-bucket.md";
        /// Resilience4j, of Java.
        resilience4j = "from/resilience4j.md";
        /// tower's `RateLimit`.
        tower = "from/tower.md";
        /// `tower_governor`.
        tower_governor = "from/tower_governor.md";
        /// `golang.org/x/time/rate`.
        x_time_rate = "from/x-time-rate.md";
    }
}
