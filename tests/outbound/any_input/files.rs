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
    let json = serde_json::to_string(limits).expect("any limits are JSON");
    assert_eq!(serde_json::from_str::<Limits>(&json).as_ref().ok(), Some(limits), "{json}");
    // TOML has no number above 2^63 - 1.
    if let Ok(toml) = toml::to_string(limits) {
        assert_eq!(toml::from_str::<Limits>(&toml).as_ref().ok(), Some(limits), "{toml}");
    }
    let limiters = RateLimiters::with_clock(limits.clone(), ManualClock::new());
    for name in limits.names() {
        assert!(limits.get(name).is_some(), "{name:?} is listed");
        let limiter = limiters.at(name).expect("it is listed");
        // The error of one that cannot be granted is one, too.
        let _ = limiter.try_acquire(1);
    }
    limiters.reload(limits.clone());
    assert_eq!(&limiters.limits(), limits);
}
