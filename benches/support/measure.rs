//! What a run of waits cost, and how late they were.

#[path = "median.rs"]
mod median;
#[path = "rate.rs"]
mod rate;

use std::fmt;
use std::time::Duration;

pub(crate) use median::median;

/// The results of one run.
pub(crate) struct Run {
    pub(crate) cpu: Duration,
    rate: f64,
    /// How late each wait ended, sorted.
    late: Vec<Duration>,
}

impl Run {
    /// `ends`: when each wait ended; `dues`: when it should have. Both in any order.
    pub(crate) fn new(cpu: Duration, mut ends: Vec<Duration>, mut dues: Vec<Duration>) -> Self {
        ends.sort();
        dues.sort();
        let rate = rate::rate_over_asked(&ends, &dues);
        let late = |(end, due): (&Duration, &Duration)| end.saturating_sub(*due);
        let mut late: Vec<_> = ends.iter().zip(&dues).map(late).collect();
        late.sort();
        Self { cpu, rate, late }
    }

    fn late(&self, percent: usize) -> f64 {
        self.late[(self.late.len() - 1) * percent / 100].as_secs_f64() * 1e3
    }
}

/// The medians of several runs, as `name=value`; `cpu_us` is the processor time of each wait.
pub(crate) fn medians(runs: &[Run]) -> impl fmt::Display {
    let of = |value: fn(&Run) -> f64| median(runs.iter().map(value).collect());
    format!(
        "cpu_s={:.3} cpu_us={:.2} rate={:.4} late_p50_ms={:.3} late_p99_ms={:.3}",
        of(|run| run.cpu.as_secs_f64()),
        of(|run| run.cpu.as_secs_f64() * 1e6 / run.late.len() as f64),
        of(|run| run.rate),
        of(|run| run.late(50)),
        of(|run| run.late(99)),
    )
}

/// Processor time of this process; zero where it is not known.
pub(crate) fn cpu_time() -> Duration {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::from_secs(time.tv_sec.cast_unsigned())
            + Duration::from_nanos(time.tv_nsec.cast_unsigned())
    }
    #[cfg(not(target_os = "linux"))]
    Duration::ZERO
}
