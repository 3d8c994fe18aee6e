//! The README and the pages of `docs` as documentation tests: their code uses crates that the crate itself does not need.
#![cfg(doctest)]

macro_rules! pages {
    ($($name:ident $page:literal)*) => {
        $(
            #[doc = include_str!(concat!("../", $page))]
            struct $name;
        )*
    };
}

pages! {
    Readme "README.md"
    Choosing "docs/choosing.md"
    Clients "docs/clients.md"
    Comparison "docs/comparison.md"
    Config "docs/config.md"
    Design "docs/design.md"
    Guarantees "docs/guarantees.md"
    Http "docs/http.md"
    Limits "docs/limits.md"
    Measurements "docs/measurements.md"
    Methods "docs/methods.md"
    Operations "docs/operations.md"
    Redis "docs/redis.md"
    Testing "docs/testing.md"
    FromBucket4j "docs/from/bucket4j.md"
    FromGovernor "docs/from/governor.md"
    FromGuava "docs/from/guava.md"
    FromLeakyBucket "docs/from/leaky-bucket.md"
    FromResilience4j "docs/from/resilience4j.md"
    FromTower "docs/from/tower.md"
    FromTowerGovernor "docs/from/tower_governor.md"
    FromXTimeRate "docs/from/x-time-rate.md"
}
