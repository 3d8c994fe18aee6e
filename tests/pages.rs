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
    Config "docs/config.md"
    Http "docs/http.md"
    Methods "docs/methods.md"
    Operations "docs/operations.md"
    Redis "docs/redis.md"
    Testing "docs/testing.md"
    FromGovernor "docs/from/governor.md"
    FromGuava "docs/from/guava.md"
}
