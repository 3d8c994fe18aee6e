//! The rate that a crowd of waits kept.

use std::time::Duration;

/// Achieved rate over the asked one. By how much later the last tenth of the waits ended than the first, not by the
/// very last one, so that a constant lateness does not count. Both in order; of `dues` the first that ended count.
pub(crate) fn rate_over_asked(ends: &[Duration], dues: &[Duration]) -> f64 {
    let behind = ends.iter().zip(dues).map(|(end, due)| end.as_secs_f64() - due.as_secs_f64());
    let behind: Vec<_> = behind.collect();
    let tenth = behind.len().div_ceil(10);
    let first = super::median(behind[..tenth].to_vec());
    let last = super::median(behind[behind.len() - tenth..].to_vec());
    let span = dues[ends.len() - 1].as_secs_f64() * 0.9;
    span / (span + last - first)
}
