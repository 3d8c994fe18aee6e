//! What is granted to callers that do not wait.

use std::sync::Mutex;
use std::time::Duration;

use governor::Quota;
use ratelimit::TryWaitError;
use throttle_net::{Hybrid, Throttle};
use tokio::time::{Instant, advance};
use tollgate::{
    Clock, FixedWindow, ManualClock, Rate, RateLimiter, Same, SlidingWindowLog, SmoothBursty,
    TokenBucket,
};
use tower::limit::RateLimit;
use tower::limit::rate::Rate as Window;

use crate::crates::{
    Check, Limit, TokioClock, answering, each_checked, governor, nonzero, ours, paused, ratelimit,
};
use crate::table::{Cell, Cells, Expected, Row};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

const HUNDRED_A_SECOND: Limit = Limit { each: Duration::from_millis(10), burst: 100 };

pub fn rows() -> Vec<Row> {
    vec![
        edge(),
        any_second(),
        first_second(),
        idle(),
        odd_times(),
        often(),
        fast(),
        overflow(),
        two_limits(),
        refund(),
        change(),
    ]
}

/// Calls that pass, of `calls`.
fn passes(limiter: &dyn Check, calls: u32) -> u32 {
    (0..calls).map(|_| u32::from(limiter.check(1))).sum()
}

fn edge() -> Row {
    async fn scenario(limiter: &dyn Check) -> u32 {
        limiter.check(1);
        advance(950 * MS).await;
        let before = passes(limiter, 100);
        advance(100 * MS).await;
        before + passes(limiter, 100)
    }
    let mut cells = each_checked(HUNDRED_A_SECOND, scenario);
    let [log, bucket, window] = [
        ours(SlidingWindowLog::new(100, SECOND), scenario),
        ours(HUNDRED_A_SECOND.bucket(), scenario),
        ours(FixedWindow::new(100, SECOND), scenario),
    ];
    cells[0] = Cell::from(log)
        .note(format!("`SlidingWindowLog`; `TokenBucket` {bucket}, `FixedWindow` {window}"));
    Row {
        fault: "twice the quota across an edge",
        done: "100 a second; a call at 0, 100 at 0.95 s and 100 at 1.05 s: how many of the 200 pass",
        expected: Expected::AtMost(100.0),
        cells,
    }
}

fn any_second() -> Row {
    async fn scenario(limiter: &dyn Check) -> u32 {
        let mut times: Vec<u32> = Vec::new();
        for ms in 0..3_000 {
            while limiter.check(1) {
                times.push(ms);
            }
            advance(MS).await;
        }
        let within = |from| times.iter().filter(|&&ms| ms >= from && ms < from + 1_000).count();
        times.iter().map(|&from| within(from) as u32).max().unwrap_or_default()
    }
    let mut cells = each_checked(HUNDRED_A_SECOND, scenario);
    let [log, bucket] = [
        ours(SlidingWindowLog::new(100, SECOND), scenario),
        ours(HUNDRED_A_SECOND.bucket(), scenario),
    ];
    cells[0] = Cell::from(log).note(format!("`SlidingWindowLog`; `TokenBucket` {bucket}"));
    Row {
        fault: "more than the quota in some second",
        done: "100 a second and 100 at once; calls without a pause for 3 s: the most in any second",
        expected: Expected::AtMost(100.0),
        cells,
    }
}

/// A hundred a second by the defaults of the crates, of which ours and leaky-bucket have several.
fn each_by_defaults(
    ours: Cell,
    leaky_bucket: Cell,
    scenario: impl AsyncFn(&dyn Check) -> u32,
) -> Cells {
    let ratelimit = ratelimit::Ratelimiter::with_clock;
    [
        ours,
        paused(async { scenario(&governor(Quota::per_second(nonzero(100)))).await.into() }),
        leaky_bucket,
        paused(async { scenario(&ratelimit(100, TokioClock::new())).await.into() }),
        paused(async { scenario(&Mutex::new(HUNDRED_A_SECOND.tower())).await.into() }),
        paused(async {
            let limiter = Throttle::per_second(100).with_clock(throttle_net::TokioClock::new());
            scenario(&limiter).await.into()
        }),
    ]
}

fn first_second() -> Row {
    async fn scenario(limiter: &dyn Check) -> u32 {
        let mut granted = 0;
        for _ in 0..1_000 {
            granted += passes(limiter, 1_000);
            advance(MS).await;
        }
        granted
    }
    let bucket = || HUNDRED_A_SECOND.bucket();
    let [full, empty] = [ours(bucket(), scenario), ours(bucket().initial(0), scenario)];
    let smooth = Cell::from(ours(SmoothBursty::new(Rate::per_second(100.0)), scenario))
        .note(format!("`SmoothBursty`; `TokenBucket` {full}, with `.initial(0)` {empty}"));
    let leaky = paused(async {
        let limiter = leaky_bucket::RateLimiter::builder().interval(10 * MS).build();
        scenario(&limiter).await.into()
    });
    let cells = each_by_defaults(smooth, leaky, scenario);
    Row {
        fault: "twice the quota at the start",
        done: "100 a second by the crate's defaults; calls without a pause for the first second",
        expected: Expected::AtMost(100.0),
        cells,
    }
}

fn idle() -> Row {
    async fn scenario(limiter: &dyn Check) -> u32 {
        advance(HOUR).await;
        passes(limiter, 10_000)
    }
    let a_second = || {
        let mut builder = leaky_bucket::RateLimiter::builder();
        builder.refill(100).interval(SECOND);
        builder
    };
    let max = paused(async { scenario(&a_second().max(100).build()).await });
    let smooth = ours(SmoothBursty::new(Rate::per_second(100.0)), scenario);
    let bucket = HUNDRED_A_SECOND.bucket();
    let bucket =
        Cell::from(ours(bucket, scenario)).note(format!("`TokenBucket`; `SmoothBursty` {smooth}"));
    let leaky = paused(async {
        Cell::from(scenario(&a_second().build()).await).note(format!("with `.max(100)` {max}"))
    });
    let cells = each_by_defaults(bucket, leaky, scenario);
    Row {
        fault: "a burst beyond the quota after a rest",
        done: "100 a second by the crate's defaults; after an hour without a call: how many pass at once",
        expected: Expected::AtMost(100.0),
        cells,
    }
}

/// Permits that a limiter grants in `span`, asked for one each `pause`, from when it has none.
async fn granted_in(limiter: &dyn Check, span: Duration, pause: Duration) -> u32 {
    while limiter.check(1) {}
    let start = Instant::now();
    let mut granted = 0;
    while start.elapsed() < span {
        advance(pause).await;
        granted += u32::from(limiter.check(1));
    }
    granted
}

fn odd_times() -> Row {
    let limit = Limit { burst: 10, ..HUNDRED_A_SECOND };
    Row {
        fault: "late calls that lower the rate",
        done: "100 a second, 10 at once; a call each 3.7 ms for 10 s: how many pass",
        expected: Expected::Is(1_000.0),
        cells: each_checked(limit, async |limiter| {
            granted_in(limiter, 10 * SECOND, Duration::from_micros(3_700)).await
        }),
    }
}

/// Asked very often, so with clocks that cost less to move than tokio's, where a crate takes one.
fn often() -> Row {
    /// Minutes until there is one more permit.
    async fn scenario(limiter: &dyn Check, advance: impl AsyncFn(Duration)) -> Cell {
        let pause = Duration::from_micros(7_100);
        assert!(limiter.check(1), "the first");
        let mut waited = Duration::ZERO;
        while !limiter.check(1) {
            advance(pause).await;
            waited += pause;
        }
        (waited.as_secs() as u32 / 60).into()
    }
    struct Shown(ManualClock);
    impl ratelimit::Clock for Shown {
        fn elapsed(&self) -> Duration {
            self.0.elapsed()
        }
    }
    let limit = Limit { each: HOUR, burst: 1 };
    let cells = std::array::from_fn(|index| {
        paused(async {
            let clock = ManualClock::new();
            match index {
                0 => {
                    let limiter = RateLimiter::with_clock(limit.bucket(), &clock);
                    scenario(&limiter, async |by| clock.advance(by)).await
                }
                1 => {
                    let clock = governor::clock::FakeRelativeClock::default();
                    let quota = limit.quota();
                    let limiter = governor::RateLimiter::direct_with_clock(quota, clock.clone());
                    scenario(&limiter, async |by| clock.advance(by)).await
                }
                3 => {
                    let limiter = ratelimit::Builder::with_clock(1, Shown(clock.clone()))
                        .period(HOUR)
                        .initial_available(1)
                        .build()
                        .expect("a limiter");
                    let cell = scenario(&limiter, async |by| clock.advance(by)).await;
                    let before = clock.elapsed();
                    while let Err(TryWaitError::Insufficient(wait)) = limiter.try_wait() {
                        clock.advance(wait);
                    }
                    let asleep = (clock.elapsed() - before).as_secs() / 60;
                    cell.note(format!("if it sleeps as its error says {asleep}"))
                }
                _ => scenario(&*limit.checked()[index], advance).await,
            }
        })
    });
    Row {
        fault: "remainders lost by asking",
        done: "one an hour, and it is taken; a call each 7.1 ms: minutes until the next one passes",
        expected: Expected::Is(60.0),
        cells,
    }
}

fn fast() -> Row {
    /// Millions in a second.
    async fn scenario(limiter: &dyn Check) -> u32 {
        const MANY: u32 = 100_000;
        while limiter.check(MANY) {}
        let mut granted = 0;
        for _ in 0..1_000 {
            advance(MS).await;
            while limiter.check(MANY) {
                granted += MANY;
            }
        }
        (granted + 500_000) / 1_000_000
    }
    let (rate, burst) = (300_000_000, 1_000_000);
    let cells = [
        ours(TokenBucket::new(Rate::per_second(f64::from(rate)), burst), scenario).into(),
        paused(async {
            let quota = Quota::per_second(nonzero(rate)).allow_burst(nonzero(burst));
            scenario(&governor(quota)).await.into()
        }),
        paused(async {
            let mut builder = leaky_bucket::RateLimiter::builder();
            builder.refill(300_000).interval(MS).max(burst as usize);
            scenario(&builder.build()).await.into()
        }),
        paused(async { scenario(&ratelimit(rate.into(), SECOND, burst, 0)).await.into() }),
        Cell::absent(),
        paused(async {
            let builder = Throttle::builder().per_second(rate).burst(burst);
            scenario(&builder.clock(throttle_net::TokioClock::new()).build()).await.into()
        }),
    ];
    Row {
        fault: "a fast rate that is rounded",
        done: "300 million bytes a second, 100,000 a call, a second without a pause: millions that pass",
        expected: Expected::Is(300.0),
        cells,
    }
}

fn overflow() -> Row {
    const MANY: u32 = 213_505;
    let cells = std::array::from_fn(|index| match index {
        4 => Cell::absent(),
        _ => paused(async {
            let limiter = &Limit { each: DAY, burst: 10 }.checked()[index];
            Cell::from(if limiter.check(MANY) { MANY } else { 0 })
        }),
    });
    Row {
        fault: "an overflow that grants",
        done: "one a day, 10 at once; a call for 213,505: how many are granted",
        expected: Expected::Is(0.0),
        cells,
    }
}

fn two_limits() -> Row {
    async fn scenario(call: impl Fn() -> bool) -> Cell {
        let mut passed = 0_u32;
        for _ in 0..50 {
            passed += u32::from(call());
        }
        for _ in 0..150 {
            advance(1_100 * MS).await;
            passed += u32::from(call());
        }
        passed.into()
    }
    let [day, second] = [Limit { each: DAY / 100, burst: 100 }, Limit { each: SECOND, burst: 1 }];
    let by_hand = |index: usize, limits: [Limit; 2]| {
        paused(async {
            let [first, second] = limits.map(Limit::checked);
            scenario(|| first[index].check(1) && second[index].check(1)).await
        })
    };
    let cells = std::array::from_fn(|index| match index {
        0 => paused(async {
            let limits = Same((day.bucket(), second.bucket()));
            let limiter = RateLimiter::with_clock(limits, Clock::tokio());
            scenario(|| limiter.check(1)).await
        }),
        4 => paused(async {
            let inner = RateLimit::new(answering(), Window::new(1, SECOND));
            let service = Mutex::new(RateLimit::new(inner, Window::new(100, DAY)));
            scenario(|| service.check(1)).await
        }),
        5 => paused(async {
            let [day, second] = [day, second].map(Limit::throttle_net);
            let limiter = Hybrid::builder().limiter(day).limiter(second).build();
            scenario(|| limiter.try_acquire()).await
        }),
        _ => {
            let other_order = by_hand(index, [second, day]).figure;
            by_hand(index, [day, second]).note(format!("in the other order {other_order}"))
        }
    });
    Row {
        fault: "a refused call that is charged",
        done: "100 a day and one a second, asked in this order; 50 calls at once, then one each 1.1 s: how many pass",
        expected: Expected::Is(100.0),
        cells,
    }
}

fn refund() -> Row {
    let ours = paused(async {
        let limiter = HUNDRED_A_SECOND.tollgate();
        let mut grant = limiter.try_acquire(100).expect("it is full");
        grant.settle(30).expect("less than was taken");
        limiter.available()
    });
    let theirs = paused(async {
        let limiter = HUNDRED_A_SECOND.throttle_net();
        assert!(limiter.check(100), "it is full");
        limiter.refund(70);
        limiter.available()
    });
    Row {
        fault: "no way to give back",
        done: "100 are taken for a call that turns out to need 30: how many another one can have at once",
        expected: Expected::Is(70.0),
        cells: std::array::from_fn(|index| match index {
            0 => ours.into(),
            5 => theirs.into(),
            _ => Cell::absent(),
        }),
    }
}

fn change() -> Row {
    /// The permits that a drained limiter has 5 s later, right after `set` has raised its rate.
    async fn scenario(limiter: &impl Check, set: impl FnOnce()) -> Cell {
        assert!(limiter.check(100_000));
        advance(5 * SECOND).await;
        set();
        passes(limiter, 100_000).into()
    }
    let ours = paused(async {
        let limiter = Limit { each: SECOND / 10, burst: 100_000 }.tollgate();
        scenario(&limiter, || limiter.set_rate(Rate::per_second(10_000.0))).await
    });
    let theirs = paused(async {
        let limiter = ratelimit(10, SECOND, 100_000, 100_000);
        scenario(&limiter, || limiter.set_rate(10_000)).await
    });
    Row {
        fault: "the past at a new rate",
        done: "5 s at 10 a second, then 10,000 a second: how many pass at once",
        expected: Expected::Is(50.0),
        cells: [ours, Cell::absent(), Cell::absent(), theirs, Cell::absent(), Cell::absent()],
    }
}
