//! A rate that is found, against servers with a hidden quota. All in paused time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};
use tollgate::adaptive::{Adaptive, Algorithm, Call};
use tollgate::{AnyRateLimiter, Clock, Limiter, ManualClock, Rate, RateLimiter, TokenBucket};

use crate::support::{paused, secs};

const ALGORITHMS: [Algorithm; 2] = [Algorithm::Aimd, Algorithm::Cubic];

fn per_second(rate: f64) -> Rate {
    Rate::per_second(rate)
}

/// A server that grants a number of calls a second.
struct Server {
    quota: Cell<f64>,
    /// For how many seconds it saves quota that is not used.
    saves: f64,
    tokens: Cell<f64>,
    at: Cell<Instant>,
    granted: Cell<u32>,
    throttled: Cell<u32>,
    is_down: Cell<bool>,
}

impl Server {
    fn new(quota: f64, saves: f64) -> Rc<Self> {
        Rc::new(Self {
            quota: Cell::new(quota),
            saves,
            tokens: Cell::new(1.0),
            at: Cell::new(Instant::now()),
            granted: Cell::new(0),
            throttled: Cell::new(0),
            is_down: Cell::new(false),
        })
    }

    fn answer(&self) -> u16 {
        if self.is_down.get() {
            self.throttled.set(self.throttled.get() + 1);
            return 500;
        }
        let quota = self.quota.get();
        let since = self.at.replace(Instant::now()).elapsed().as_secs_f64();
        let tokens = (self.tokens.get() + since * quota).min((quota * self.saves).max(1.5));
        let is_granted = tokens >= 1.0;
        self.tokens.set(if is_granted { tokens - 1.0 } else { tokens });
        let count = if is_granted { &self.granted } else { &self.throttled };
        count.set(count.get() + 1);
        if is_granted { 200 } else { 429 }
    }

    /// In 30 seconds: how many calls a second it grants, the mean rate of the client, and what part of all calls it
    /// throttles.
    async fn measure(&self, adaptive: &Adaptive<TokenBucket>) -> (f64, f64, f64) {
        self.granted.set(0);
        self.throttled.set(0);
        let mut rates = 0.0;
        for _ in 0..300 {
            sleep(Duration::from_millis(100)).await;
            rates += adaptive.rate().as_per_second();
        }
        let (granted, throttled) = (f64::from(self.granted.get()), f64::from(self.throttled.get()));
        (granted / 30.0, rates / 300.0, throttled / (granted + throttled))
    }
}

fn adaptive(algorithm: Algorithm, start: f64) -> Adaptive<TokenBucket> {
    let limiter = RateLimiter::with_clock(TokenBucket::new(per_second(start), 1), Clock::tokio());
    Adaptive::builder(limiter).algorithm(algorithm).build()
}

/// More workers than the quota keeps busy, until the last handle on `server` is dropped.
fn work(adaptive: &Adaptive<TokenBucket>, server: &Rc<Server>, latency: Duration) {
    let workers = 4 + latency.as_millis() / 2;
    for _ in 0..workers {
        let (adaptive, server) = (adaptive.clone(), Rc::downgrade(server));
        tokio::task::spawn_local(async move {
            loop {
                let call = adaptive.acquire(1).await.expect("a grant");
                sleep(latency / 2).await;
                let Some(server) = server.upgrade() else { return };
                let status = server.answer();
                drop(server);
                sleep(latency / 2).await;
                call.on_status(status);
            }
        });
    }
}

fn run(test: impl Future<Output = ()> + 'static) {
    LocalSet::new().block_on(&paused(), test);
}

/// Within 5 % after 60 seconds, from far too low and far too high, and after each change.
#[test]
fn a_hidden_quota_is_found_within_a_minute_and_again_after_it_changes() {
    for algorithm in ALGORITHMS {
        for (start, latency, saves) in [(10.0, 40, 0.0), (200.0, 200, 0.1)] {
            run(async move {
                let server = Server::new(50.0, saves);
                let adaptive = adaptive(algorithm, start);
                work(&adaptive, &server, Duration::from_millis(latency));
                for quota in [50.0, 120.0, 30.0, 8.0, 40.0] {
                    server.quota.set(quota);
                    sleep(secs(60)).await;
                    let (granted, rate, throttled) = server.measure(&adaptive).await;
                    let found = format!(
                        "{algorithm:?} from {start}/s, {latency} ms: {granted:.1} granted of {quota}, \
                         at {rate:.1}, {:.1} % throttled",
                        100.0 * throttled,
                    );
                    println!("{found}");
                    assert!((granted / quota - 1.0).abs() <= 0.05, "{found}");
                    assert!((rate / quota - 1.0).abs() <= 0.05, "{found}");
                    assert!(throttled <= 0.1, "{found}");
                }
            });
        }
    }
}

/// Two workers that need a tenth of the rate, and then nothing for an hour.
#[test]
fn the_rate_does_not_grow_while_callers_need_not_wait() {
    for algorithm in ALGORITHMS {
        run(async move {
            let adaptive = adaptive(algorithm, 100.0);
            adaptive.acquire(1).await.expect("a grant").on_throttled();
            let fallen = adaptive.rate();
            for _ in 0..1000 {
                sleep(Duration::from_millis(100)).await;
                adaptive.acquire(1).await.expect("a grant").on_success();
            }
            assert_eq!(adaptive.rate(), fallen);
            sleep(secs(3600)).await;
            for _ in 0..2 {
                adaptive.acquire(1).await.expect("a grant").on_success();
            }
            assert!(adaptive.rate().as_per_second() < 1.06 * fallen.as_per_second());
        });
    }
}

#[test]
fn throttled_calls_sent_at_one_rate_make_it_fall_once() {
    for (algorithm, keeps) in [(Algorithm::Aimd, 0.9), (Algorithm::Cubic, 0.85)] {
        let policy = TokenBucket::new(per_second(100.0), 100);
        let limiter = RateLimiter::with_clock(policy, ManualClock::new());
        let adaptive = Adaptive::builder(limiter).algorithm(algorithm).build();
        let call = || adaptive.call(adaptive.limiter().try_acquire(1).expect("a full bucket"));
        let sent: [_; 20] = std::array::from_fn(|_| call());
        sent.into_iter().for_each(Call::on_throttled);
        assert_eq!(adaptive.rate(), per_second(100.0 * keeps));
        call().on_throttled();
        assert!((adaptive.rate().as_per_second() - 100.0 * keeps * keeps).abs() < 1e-9);
    }
}

#[test]
fn the_rate_stays_between_floor_and_ceiling() {
    for algorithm in ALGORITHMS {
        let policy = TokenBucket::new(per_second(100.0), 1);
        let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
        let builder = Adaptive::builder(limiter).algorithm(algorithm);
        let adaptive = builder.floor(per_second(20.0)).ceiling(per_second(150.0)).build();
        let call = || adaptive.call(adaptive.limiter().blocking_acquire(1).expect("a grant"));
        (0..2_000).for_each(|_| call().on_success());
        assert_eq!(adaptive.rate(), per_second(150.0));
        (0..100).for_each(|_| call().on_throttled());
        assert_eq!(adaptive.rate(), per_second(20.0));
        (0..10_000).for_each(|_| call().on_success());
        assert_eq!(adaptive.rate(), per_second(150.0));
        // Bounds that exclude each other: the floor holds.
        let builder = Adaptive::builder(adaptive.limiter().clone());
        let builder = builder.floor(per_second(7.0)).ceiling(per_second(5.0));
        assert_eq!(builder.build().rate(), per_second(7.0));
    }
}

/// Five minutes in which each call fails and each worker wants four retries of it: the server sees a tenth more
/// calls, and not five times as many.
#[test]
fn an_outage_is_not_multiplied_by_retries() {
    run(async {
        let server = Server::new(50.0, 0.1);
        let limiter =
            RateLimiter::with_clock(TokenBucket::new(per_second(500.0), 1), Clock::tokio());
        let adaptive = Adaptive::new(limiter);
        server.is_down.set(true);
        let calls = Rc::new(Cell::new(0_u32));
        for _ in 0..20 {
            let (adaptive, server, calls) =
                (adaptive.clone(), Rc::clone(&server), Rc::clone(&calls));
            tokio::task::spawn_local(async move {
                loop {
                    calls.set(calls.get() + 1);
                    for _ in 0..5 {
                        let call = adaptive.acquire(1).await.expect("a grant");
                        let status = server.answer();
                        call.on_status(status);
                        if status < 500 || !adaptive.may_retry() {
                            break;
                        }
                    }
                    sleep(secs(1)).await;
                }
            });
        }
        sleep(secs(300)).await;
        let (sent, calls) = (server.throttled.get(), calls.get());
        println!("{calls} calls, {sent} with retries");
        assert!(calls >= 20 * 299);
        // A tenth of all, ten at first, and one each ten seconds.
        assert!(sent > calls + calls / 10);
        assert!(f64::from(sent - calls) <= 0.1 * f64::from(sent) + 10.0 + 30.0);
    });
}

/// The listener learns of a new rate while the report of a call is under way.
#[test]
fn a_listener_may_use_what_it_listens_to() {
    use std::sync::{Arc, OnceLock, mpsc};

    let told = Arc::new(OnceLock::<Adaptive<TokenBucket>>::new());
    let (adaptive, (done, is_done)) = (Arc::clone(&told), mpsc::channel());
    std::thread::spawn(move || {
        let limiter = RateLimiter::builder(TokenBucket::new(per_second(10.0), 10))
            .clock(ManualClock::new())
            .on_event(move |_| {
                if let Some(adaptive) = told.get() {
                    let grant = adaptive.limiter().try_acquire(1).expect("there are more");
                    adaptive.call(grant).on_success();
                }
            })
            .build();
        let adaptive = adaptive.get_or_init(|| Adaptive::new(limiter));
        let call = adaptive.call(adaptive.limiter().try_acquire(1).expect("full"));
        call.on_throttled();
        done.send(adaptive.rate()).expect("waited for");
    });
    let rate = is_done.recv_timeout(secs(10)).expect("no deadlock");
    assert_eq!(rate, per_second(9.0));
}

/// What every limiter does: the calls of an adaptive rate are its grants.
#[test]
fn calls_are_the_grants_of_a_limiter() -> Result<(), tollgate::Error> {
    let policy = TokenBucket::new(per_second(100.0), 10);
    let limiter = RateLimiter::builder(policy).clock(ManualClock::auto_advance()).name("api");
    let adaptive = Adaptive::builder(limiter.build()).retries(0.5).build();
    paused().block_on(async {
        // Each call adds its share of a retry; what is taken because a server says so is no call.
        while adaptive.may_retry() {}
        let taken = adaptive.shrink_to(4).await?;
        assert_eq!((taken.cost(), adaptive.may_retry()), (6, false));
        taken.refund();

        let mut call = adaptive.try_acquire(7).await?;
        call.settle(5)?;
        assert_eq!((call.cost(), adaptive.available().await?), (5, 5));
        call.on_throttled();
        assert_eq!((adaptive.rate(), adaptive.may_retry()), (per_second(90.0), false));
        drop(adaptive.try_acquire(1).await?.metered().or(0));
        assert!(adaptive.may_retry() && !adaptive.may_retry());
        let all = adaptive.try_acquire_up_to(100).await?;
        assert_eq!((all.cost(), adaptive.available().await?), (5, 0));
        all.refund();
        assert_eq!(adaptive.try_acquire(5).await?.waited(), Duration::ZERO);

        // In turns of tenants; a place that is dropped gives nothing to the budget.
        let ann = [adaptive.acquire_for("ann", 9).enter(), adaptive.acquire_for("ann", 9).enter()];
        let [first, second] = ann;
        let (first, second) = (first.await?, second.await?);
        let bob = adaptive.acquire_for("bob", 9).reserve()?;
        assert_eq!(adaptive.queue_len(), 3);
        assert!(first.delay() < bob.delay() && bob.delay() < second.delay());
        drop((first, second));
        assert!(bob.wait().await?.waited() > Duration::ZERO);
        assert!(adaptive.may_retry() && !adaptive.may_retry());

        let any = AnyRateLimiter::new(adaptive.clone());
        assert_eq!(any.acquire(9).await?.cost(), 9);
        assert_eq!((any.name(), any.stats().given_up), (Some("api"), 2));
        Ok(())
    })
}
