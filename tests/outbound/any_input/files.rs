//! A file with limits by name.

use tollgate::{Limits, ManualClock, RateLimiters};

/// Reads a file as TOML and as JSON.
pub(crate) fn judge(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    match toml::from_str(text) {
        Ok(limits) => check(&limits),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match serde_json::from_str(text) {
        Ok(limits) => check(&limits),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check(limits: &Limits) {
    let limiters = RateLimiters::with_clock(limits.clone(), ManualClock::new());
    for name in limits.names() {
        // The error of one that cannot be granted is one, too.
        let _ = limiters.at(name).try_acquire(1);
    }
    limiters.reload(limits.clone());
    assert_eq!(&*limiters.limits(), limits);
}
