//! What happens to callers that wait.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use futures::future::{join, join_all};
use throttle_net::Hybrid;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::{Limiter, Rate};

use crate::crates::{Limit, Wait, Waiting, each_waited_for, nonzero, paused};
use crate::table::{Cell, Expected, Figure, Row};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TEN_SECONDS: Duration = Duration::from_secs(10);

const TEN_A_SECOND: Limit = Limit { each: Duration::from_millis(100), burst: 1 };
const HUNDRED_A_SECOND: Limit = Limit { each: Duration::from_millis(10), burst: 1 };

pub fn rows() -> Vec<Row> {
    vec![
        large(),
        loops(),
        both(),
        polls(),
        kept(),
        left(),
        nine_left(),
        overload(),
        at_once(),
        hopeless(),
        above(),
        faster(),
        paused_time(),
    ]
}

fn since(start: Instant) -> Cell {
    (start.elapsed().as_millis() as u32).into()
}

/// The milliseconds that `future` takes, or never if it takes longer than `most`.
async fn ms_of<T>(most: Duration, future: impl Future<Output = T>) -> Cell {
    let start = Instant::now();
    match timeout(most, future).await {
        Ok(_) => since(start),
        Err(_) => Figure::Never.into(),
    }
}

/// Milliseconds that a caller waits for 50 permits, at most `most`, while five others take one after the other.
pub async fn starved(limiter: Arc<dyn Wait>, most: Duration) -> Cell {
    let big = ms_of(most, limiter.wait(50));
    beside_others([limiter.clone()], Duration::ZERO, big).await
}

/// `caller`, while five others of each limiter take one permit after the other, with a pause between them.
async fn beside_others(
    limiters: impl IntoIterator<Item = Arc<dyn Wait>>,
    pause: Duration,
    caller: impl Future<Output = Cell>,
) -> Cell {
    let mut others = JoinSet::new();
    for limiter in limiters {
        for _ in 0..5 {
            let limiter = limiter.clone();
            others.spawn(async move {
                loop {
                    limiter.wait(1).await;
                    if !pause.is_zero() {
                        sleep(pause).await;
                    }
                }
            });
        }
    }
    caller.await
}

/// Once the others take turns.
async fn later<T>(call: impl Future<Output = T>) -> Cell {
    sleep(105 * MS).await;
    ms_of(TEN_SECONDS, call).await
}

fn loops() -> Row {
    let cells = each_waited_for(HUNDRED_A_SECOND, false, async |limiter: Arc<dyn Wait>| {
        beside_others([limiter.clone()], Duration::ZERO, later(limiter.wait(1))).await
    });
    Row {
        fault: "a caller that gets nothing beside loops",
        done: "100 a second; five callers take one after the other and await nothing else, for 10 s; another one comes: \
               milliseconds until it goes on",
        expected: Expected::AtMost(70.0),
        cells,
    }
}

fn both() -> Row {
    let limit = HUNDRED_A_SECOND;
    let by_hand = |index: usize| {
        paused(async {
            let limiters = [limit.waited_for(index), limit.waited_for(index)];
            let [first, second] = limiters.clone();
            let both = async { (first.wait(1).await, second.wait(1).await) };
            beside_others(limiters, MS, later(both)).await
        })
    };
    let ours = paused(async {
        let (first, second) = (limit.tollgate(), limit.tollgate());
        let limiters: [Arc<dyn Wait>; 2] = [Arc::new(first.clone()), Arc::new(second.clone())];
        let both = first.and(&second);
        beside_others(limiters, MS, later(both.acquire(1))).await
    });
    let theirs = paused(async {
        let limiters = [Arc::new(limit.throttle_net()), Arc::new(limit.throttle_net())];
        let [first, second] = limiters.clone();
        let both = Hybrid::builder().shared(first).shared(second).build();
        let limiters = limiters.map(|limiter| limiter as Arc<dyn Wait>);
        beside_others(limiters, MS, later(both.acquire())).await
    });
    let cells = [ours, by_hand(1), by_hand(2), by_hand(3), Cell::absent(), theirs];
    Row {
        fault: "a call of two limits that starves",
        done: "two limits of 100 a second, each with five callers that take one after the other, 1 ms apart, for 10 s; \
               another one needs both: milliseconds until it goes on",
        expected: Expected::AtMost(150.0),
        cells,
    }
}

fn large() -> Row {
    let limit = Limit { burst: 50, ..HUNDRED_A_SECOND };
    Row {
        fault: "a large request that starves",
        done: "100 a second, 50 at once; one caller waits for 50 while five others take one after the other, for \
               10 s: milliseconds until it goes on",
        expected: Expected::AtMost(510.0),
        cells: each_waited_for(limit, true, async |limiter| starved(limiter, TEN_SECONDS).await),
    }
}

fn polls() -> Row {
    const CALLERS: u32 = 100;
    let cells = each_waited_for(HUNDRED_A_SECOND, false, async |limiter: Arc<dyn Wait>| {
        let polls = Arc::new(AtomicU32::new(0));
        let callers = (0..CALLERS).map(|_| {
            let (limiter, polls) = (limiter.clone(), polls.clone());
            tokio::spawn(async move {
                let mut wait = limiter.wait(1);
                poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    wait.as_mut().poll(context)
                })
                .await;
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.expect("no panic");
        }
        polls.load(Ordering::Relaxed).into()
    });
    Row {
        fault: "all waiters woken for one permit",
        done: "100 a second; 100 callers wait from the same time: polls of their tasks until all have gone on",
        expected: Expected::AtMost(400.0),
        cells,
    }
}

/// A wait that has begun, and is not polled any more.
fn begun(limiter: &dyn Wait) -> Waiting<'_> {
    let mut wait = limiter.wait(1);
    assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait
}

fn kept() -> Row {
    let cells = each_waited_for(TEN_A_SECOND, false, async |limiter: Arc<dyn Wait>| {
        let _first = begun(&*limiter);
        ms_of(TEN_SECONDS, limiter.wait(1)).await
    });
    Row {
        fault: "a wait that hangs on another one",
        done: "10 a second; the future of the first waiter is kept and not polled, for 10 s: milliseconds until the \
               second one goes on",
        expected: Expected::AtMost(210.0),
        cells,
    }
}

fn left() -> Row {
    let cells = each_waited_for(TEN_A_SECOND, false, async |limiter: Arc<dyn Wait>| {
        let first = begun(&*limiter);
        let second = limiter.clone();
        let start = Instant::now();
        let second = tokio::spawn(async move { second.wait(1).await });
        sleep(150 * MS).await;
        drop(first);
        timeout(TEN_SECONDS, second).await.map_or(Figure::Never.into(), |_| since(start))
    });
    Row {
        fault: "a permit lost with its caller",
        done: "10 a second; the first waiter is not polled when its permit comes, and dropped 50 ms later, for 10 s: \
               milliseconds until the second one goes on",
        expected: Expected::AtMost(210.0),
        cells,
    }
}

fn nine_left() -> Row {
    let cells = each_waited_for(TEN_A_SECOND, false, async |limiter: Arc<dyn Wait>| {
        let nine = (0..9).map(|_| timeout(50 * MS, limiter.wait(1)));
        let (_, tenth) = join(join_all(nine), ms_of(TEN_SECONDS, limiter.wait(1))).await;
        tenth
    });
    Row {
        fault: "places that are not given on",
        done: "10 a second; ten callers wait, and nine of them leave after 50 ms: milliseconds until the tenth goes on",
        expected: Expected::AtMost(110.0),
        cells,
    }
}

/// When callers go on that come each 50 ms, for 20 s, and give up after a second.
async fn overloaded(wait: impl AsyncFn() -> bool) -> Vec<Instant> {
    let callers = (0..400).map(|index| {
        let wait = &wait;
        async move {
            sleep(50 * MS * index).await;
            wait().await.then(Instant::now)
        }
    });
    join_all(callers).await.into_iter().flatten().collect()
}

fn overload() -> Row {
    let cells = each_waited_for(TEN_A_SECOND, false, async |limiter: Arc<dyn Wait>| {
        let wait = async || timeout(SECOND, limiter.wait(1)).await.is_ok();
        (overloaded(wait).await.len() as u32).into()
    });
    Row {
        fault: "callers that give up are charged",
        done: "10 a second; for 20 s twice as many callers come, and each gives up after a second: how many go on",
        expected: Expected::AtLeast(200.0),
        cells,
    }
}

fn at_once() -> Row {
    async fn most_at_once(wait: impl AsyncFn() -> bool) -> u32 {
        let ends = overloaded(wait).await;
        let within = |from| ends.iter().filter(|&&end| end >= from && end < from + 90 * MS).count();
        ends.iter().map(|&from| within(from)).max().unwrap_or_default() as u32
    }
    let mut cells = each_waited_for(TEN_A_SECOND, false, async |limiter: Arc<dyn Wait>| {
        most_at_once(async || timeout(SECOND, limiter.wait(1)).await.is_ok()).await.into()
    });
    let own = paused(async {
        let limiter = TEN_A_SECOND.throttle_net();
        most_at_once(async || limiter.acquire_timeout(SECOND).await.is_ok()).await
    });
    cells[5].note = format!("with `acquire_timeout` {own}");
    Row {
        fault: "a burst of those that come after others gave up",
        done: "the same, one at once: the most that go on within 90 ms",
        expected: Expected::Is(1.0),
        cells,
    }
}

fn hopeless() -> Row {
    const HALF: Duration = Duration::from_millis(500);
    let limit = Limit { each: SECOND, burst: 1 };
    let mut cells = each_waited_for(limit, false, async |limiter: Arc<dyn Wait>| {
        let start = Instant::now();
        assert!(timeout(HALF, limiter.wait(1)).await.is_err());
        since(start)
    });
    cells[0] = paused(async {
        let limiter = limit.tollgate();
        limiter.try_acquire(1).expect("the first");
        let start = Instant::now();
        assert!(limiter.try_acquire_timeout(1, HALF).await.is_err());
        since(start)
    });
    // These tell the wait to a caller that asks.
    cells[1] = paused(async {
        let limiter = limit.governor();
        limiter.check().expect("the first");
        let start = Instant::now();
        let not_until = limiter.check().expect_err("no second one");
        assert!(not_until.wait_time_from(governor::clock::Clock::now(limiter.clock())) > HALF);
        since(start).note("`wait_time_from`")
    });
    cells[3] = paused(async {
        let limiter = limit.ratelimit();
        limiter.try_wait().expect("the first");
        let start = Instant::now();
        let error = limiter.try_wait().expect_err("no second one");
        assert!(matches!(error, ratelimit::TryWaitError::Insufficient(wait) if wait > HALF));
        since(start).note("its error")
    });
    cells[5] = paused(async {
        let limiter = limit.throttle_net();
        assert!(limiter.try_acquire(), "the first");
        let start = Instant::now();
        assert!(limiter.acquire_timeout(HALF).await.is_err());
        since(start)
    });
    Row {
        fault: "a timeout that is waited for in vain",
        done: "one a second; a caller has half a second, by tokio's `timeout` if the crate does not tell the wait: \
               milliseconds until it knows that this is not enough",
        expected: Expected::Is(0.0),
        cells,
    }
}

fn above() -> Row {
    let limit = Limit { burst: 10, ..HUNDRED_A_SECOND };
    let cells = [
        paused(async {
            let (limiter, start) = (limit.tollgate(), Instant::now());
            assert!(limiter.acquire(11).await.is_err());
            since(start).note("an error")
        }),
        paused(async {
            let (limiter, start) = (limit.governor(), Instant::now());
            assert!(limiter.check_n(nonzero(11)).is_err());
            since(start).note("an error")
        }),
        paused(async {
            let (limiter, start) = (limit.leaky_bucket(), Instant::now());
            limiter.acquire(11).await;
            since(start).note("granted")
        }),
        paused(async {
            let (limiter, start) = (limit.ratelimit(), Instant::now());
            assert_eq!(limiter.try_wait_n(11), Err(ratelimit::TryWaitError::ExceedsCapacity));
            since(start).note("an error")
        }),
        Cell::absent(),
        paused(async {
            let (limiter, start) = (limit.throttle_net(), Instant::now());
            assert!(limiter.acquire_with_cost(11).await.is_err());
            since(start).note("an error")
        }),
    ];
    Row {
        fault: "a request that waits for ever",
        done: "100 a second, 10 at once; a caller asks for 11: milliseconds until it has an answer",
        expected: Expected::AtMost(20.0),
        cells,
    }
}

fn faster() -> Row {
    async fn scenario(limiter: Arc<impl Wait + 'static>, set: impl FnOnce()) -> Cell {
        limiter.wait(1).await;
        let waits: Vec<_> = (0..10)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.wait(1).await })
            })
            .collect();
        sleep(SECOND).await;
        set();
        ms_of(TEN_SECONDS, join_all(waits)).await
    }
    let limit = Limit { each: 10 * SECOND, burst: 1 };
    let ours = paused(async {
        let limiter = Arc::new(limit.tollgate());
        scenario(limiter.clone(), || limiter.set_rate(Rate::per_second(1_000.0))).await
    });
    let theirs = paused(async {
        let limiter = Arc::new(limit.ratelimit());
        scenario(limiter.clone(), || limiter.set_rate_per(1_000, SECOND)).await
    });
    Row {
        fault: "a new rate that waiters do not see",
        done: "one in 10 s; 10 callers wait, and a second later the rate is 1,000 a second: milliseconds until they \
               have gone on",
        expected: Expected::AtMost(20.0),
        cells: [ours, Cell::absent(), Cell::absent(), theirs, Cell::absent(), Cell::absent()],
    }
}

fn paused_time() -> Row {
    let limit = Limit { each: 50 * MS, burst: 1 };
    let mut cells = each_waited_for(limit, false, async |limiter: Arc<dyn Wait>| {
        let start = Instant::now();
        for _ in 0..10 {
            limiter.wait(1).await;
        }
        since(start)
    });
    // By its own future here, not as in `crates`.
    cells[1] = paused(async {
        let limiter = governor::RateLimiter::direct(limit.quota());
        limiter.until_ready().await;
        let start = Instant::now();
        for _ in 0..10 {
            limiter.until_ready().await;
        }
        since(start).note("`until_ready` waits half a second of the system's time")
    });
    cells[3].note = "by a clock of the program".to_owned();
    Row {
        fault: "waits that paused time does not skip",
        done: "20 a second in a test with tokio's paused time; ten waits: milliseconds that tokio's clock shows",
        expected: Expected::AtLeast(500.0),
        cells,
    }
}
