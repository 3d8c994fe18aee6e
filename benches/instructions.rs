//! How many instructions does each path take, and how large is a call where it is inlined?
//!
//! `./benches/instructions`, on Linux: it installs valgrind if that is missing. Fails with the name of
//! a path that takes more than its limit. Unlike times, counts do not depend on the machine or on what
//! else it does; they do depend on the compiler's version and target, and on the C library where a call
//! copies or allocates.
//!
//! The bench runs itself once under callgrind, which counts the instructions executed in
//! [`counted_batch`] and writes a sum after each batch. Of a path's batches the smallest counts:
//! whatever disturbs a batch adds to it. Above all that is the system clock, which asks the
//! operating system once in a millisecond, and a batch is much shorter than that even under
//! callgrind. An empty closure, called in the same way, is subtracted: a count is what a function
//! of its own takes besides its call and its return. It includes one read of the limiter's address,
//! for the floor too.
//!
//! Callers wait by a [`ManualClock`], whose alarms are counted: no other thread wakes them.
//!
//! The size is that of a function which does nothing but the call, as the symbol table has it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::env;
use std::fmt::Debug;
use std::fs;
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::Path;
use std::pin::{Pin, pin};
use std::process::{Command, ExitCode, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{
    Acquire, AnyRateLimiter, Error, FixedWindow, Gcra, InFlight, KeyedRateLimiter, Limiter,
    ManualClock, Policy, Rate, RateLimiter, SlidingWindowCounter, SlidingWindowLog, SmoothBursty,
    SmoothWarmingUp, TokenBucket,
};

/// Name, the most instructions a call, and a function that makes the limiter and its call. The call
/// returns whether it went as the name says.
type Row = (&'static str, u64, fn() -> Call);
type Call = Box<dyn Fn() -> bool>;

/// The limits are those of this target. Elsewhere the table is printed, and nothing fails.
const JUDGED: bool = cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"));

/// A limit is the count at the time of writing and nine: ten more fail. What the compiler inlines
/// depends on how many callers a function has, so a new row or site may change the counts of others.
const PATHS: &[Row] = &[
    ("try_acquire, bursty", 85, || on(bursty(), |l| l.try_acquire(1).is_ok())),
    ("try_acquire, token bucket", 85, || on(bucket(), |l| l.try_acquire(1).is_ok())),
    ("try_acquire, gcra", 85, || {
        on(Gcra::new(u32::MAX - 1, 1_000_000_000, SECOND), |l| l.try_acquire(1).is_ok())
    }),
    // More than a 64th of the bucket has to be recorded. Each call has a bucket of its own, as few fit in one.
    ("try_acquire, small bucket", 302, || small_buckets(2)),
    ("try_acquire, one permit of a small bucket", 95, || small_buckets(1)),
    ("refused, bursty", 82, || {
        on_exhausted(slow_bursty(), 1_000_000, |l| l.try_acquire(1).is_err())
    }),
    // As above: what is refused needs no record, however long ago the last charge was.
    ("refused, bursty, 20 ms after a charge", 82, || {
        let call = on_exhausted(slow_bursty(), 1_000_000, |l| l.try_acquire(1).is_err());
        std::thread::sleep(Duration::from_millis(20));
        call
    }),
    ("refused, bursty, retry_after read", 116, || {
        on_exhausted(slow_bursty(), 1_000_000, |l| {
            l.try_acquire(1).err().and_then(|error| error.retry_after()).is_some()
        })
    }),
    ("refused, token bucket", 82, || {
        let policy = TokenBucket::new(Rate::per_second(0.01), 1_000);
        on_exhausted(policy, 1_000, |l| l.try_acquire(1).is_err())
    }),
    ("acquire, ready, bursty", 97, || {
        on(bursty(), |l| {
            let mut context = Context::from_waker(Waker::noop());
            pin!(l.acquire(1)).poll(&mut context).is_ready()
        })
    }),
    ("blocking_acquire, ready, bursty", 85, || on(bursty(), |l| l.blocking_acquire(1).is_ok())),
    ("try_acquire, warming up", 186, || {
        let policy = SmoothWarmingUp::new(Rate::per_second(1e9), Duration::from_micros(10));
        on(policy, |l| l.try_acquire(1).is_ok())
    }),
    ("refused, warming up", 110, || {
        let policy = SmoothWarmingUp::new(Rate::per_second(5.0), SECOND);
        on_exhausted(policy, 1_000_000, |l| l.try_acquire(1).is_err())
    }),
    ("bursty and token bucket", 192, || {
        on((bursty(), bucket()), |l| l.try_acquire((1, 1)).is_ok())
    }),
    ("token bucket and in flight, and back", 174, || {
        on((bucket(), InFlight::new(10)), |l| l.try_acquire((1, 1)).is_ok())
    }),
    ("three together, and back", 268, || {
        on((window(), bucket(), InFlight::new(10)), |l| l.try_acquire((1, 1, 1)).is_ok())
    }),
    ("fixed window", 91, || on(window(), |l| l.try_acquire(1).is_ok())),
    ("sliding counter", 163, || {
        on(SlidingWindowCounter::new(u32::MAX, SECOND, 10), |l| l.try_acquire(1).is_ok())
    }),
    // One expires and one comes each time.
    ("sliding log", 161, || {
        let policy = SlidingWindowLog::new(u32::MAX, Duration::from_nanos(1));
        on(policy, |l| l.try_acquire(1).is_ok())
    }),
    ("in flight, and back", 73, || on(InFlight::new(10), |l| l.try_acquire(1).is_ok())),
    ("at a key, token bucket", 236, || {
        with((keyed_bucket(), Cell::new(0)), |(limiter, calls)| {
            limiter.try_acquire(&(calls.replace(calls.get() + 1) % 1_000), 1).is_ok()
        })
    }),
    ("at a key, refused, bursty", 189, || {
        let limiter = KeyedRateLimiter::new(SmoothBursty::new(Rate::every(MINUTE)));
        (0..1_000).for_each(|key: u64| drop(limiter.try_acquire(&key, 1)));
        with((limiter, Cell::new(0)), |(limiter, calls)| {
            limiter.try_acquire(&(calls.replace(calls.get() + 1) % 1_000), 1).is_err()
        })
    }),
    ("at a key, acquire, ready, bucket", 339, || {
        with((keyed_bucket(), Cell::new(0)), |(limiter, calls)| {
            is_granted(limiter.acquire(&(calls.replace(calls.get() + 1) % 1_000), 1))
        })
    }),
    ("acquire_owned, ready, bursty", 246, || on(bursty(), |l| is_granted(l.acquire_owned(1)))),
    ("dyn, acquire, ready, bursty", 687, || {
        with(without_type(RateLimiter::new(bursty())), |l| is_granted(l.acquire(1)))
    }),
    ("dyn, try_acquire, ready, bursty", 688, || {
        with(without_type(RateLimiter::new(bursty())), |l| is_granted(l.try_acquire(1)))
    }),
    ("dyn, at a key, acquire, ready, bucket", 1118, || {
        let limiter = keyed_bucket();
        let handles: Vec<_> = (0..1_000).map(|key| without_type(limiter.at(key))).collect();
        with((handles, Cell::new(0)), |(handles, calls)| {
            is_granted(handles[calls.replace(calls.get() + 1) % 1_000].acquire(1))
        })
    }),
    ("waits alone, leaves, bursty", 3206, || {
        with(queue_of(0), |queue| is_waiting(queue.limiter.acquire(1)))
    }),
    ("waits behind eight, leaves, bursty", 1571, || {
        with(queue_of(8), |queue| is_waiting(queue.limiter.acquire(1)))
    }),
    ("reserve behind eight, leaves, bursty", 1587, || {
        with(queue_of(8), |queue| queue.limiter.reserve(1).is_ok())
    }),
    ("waits alone, granted, bursty", 3863, || {
        with(queue_of(0), |queue| {
            let mut caller = pin!(queue.limiter.acquire(1));
            let waited = is_waiting(caller.as_mut());
            queue.clock.advance(SECOND);
            waited && is_granted(caller)
        })
    }),
    // The first of the queue is granted, and joins it again.
    ("waits among eight, granted, bursty", 3626, || {
        with(queue_of(8), |queue| {
            let mut callers = queue.callers.borrow_mut();
            let Some(mut caller) = callers.pop_front() else { return false };
            queue.clock.advance(SECOND);
            let granted = caller.as_mut().as_pin_mut().is_some_and(is_granted);
            caller.set(Some(queue.limiter.acquire_owned(1)));
            let waits = caller.as_mut().as_pin_mut().is_some_and(is_waiting);
            callers.push_back(caller);
            granted && waits
        })
    }),
    // One that a server takes, and whose answer says nothing about limits.
    #[cfg(feature = "feedback")]
    ("feedback: a call and its answer without fields", 3010, || {
        with(tollgate::feedback::Feedback::new(RateLimiter::new(bucket())), |feedback| {
            let Poll::Ready(Ok(mut call)) = poll_once(pin!(feedback.acquire(1))) else {
                return false;
            };
            let none: [(&str, &str); 0] = [];
            matches!(poll_once(pin!(call.observe(200u16, &none))), Poll::Ready(answer) if answer.is_accepted())
        })
    }),
];

/// Functions of this file by their names, and how many bytes they may take. Functions that they
/// call without inlining are not included.
const SITES: &[(&str, u64)] = &[
    ("site_try_acquire", 1024),
    ("site_acquire", 1024),
    ("site_warming_up", 1024),
    ("site_two_together", 1024),
    ("site_window", 1024),
    ("site_three_together", 1088),
];

#[inline(never)]
fn site_try_acquire(limiter: &RateLimiter<SmoothBursty>) -> bool {
    limiter.try_acquire(1).is_ok()
}

#[inline(never)]
fn site_acquire(limiter: &RateLimiter<SmoothBursty>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    pin!(limiter.acquire(1)).poll(&mut context).is_ready()
}

#[inline(never)]
fn site_warming_up(limiter: &RateLimiter<SmoothWarmingUp>) -> bool {
    limiter.try_acquire(1).is_ok()
}

#[inline(never)]
fn site_two_together(limiter: &RateLimiter<(SmoothBursty, TokenBucket)>) -> bool {
    limiter.try_acquire((1, 1)).is_ok()
}

#[inline(never)]
fn site_window(limiter: &RateLimiter<FixedWindow>) -> bool {
    limiter.try_acquire(1).is_ok()
}

#[inline(never)]
fn site_three_together(limiter: &RateLimiter<(FixedWindow, TokenBucket, InFlight)>) -> bool {
    limiter.try_acquire((1, 1, 1)).is_ok()
}

/// A function without a use is not in the binary.
fn keep_sites() {
    black_box(site_try_acquire as fn(&_) -> bool);
    black_box(site_acquire as fn(&_) -> bool);
    black_box(site_three_together as fn(&_) -> bool);
    black_box(site_warming_up as fn(&_) -> bool);
    black_box(site_two_together as fn(&_) -> bool);
    black_box(site_window as fn(&_) -> bool);
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Fast enough that the ticket has always come.
fn bursty() -> SmoothBursty {
    SmoothBursty::new(Rate::per_second(1e9))
}

fn slow_bursty() -> SmoothBursty {
    SmoothBursty::new(Rate::per_second(5.0))
}

fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_second(1e9), u32::MAX)
}

fn window() -> FixedWindow {
    FixedWindow::new(u32::MAX, SECOND)
}

/// A call for some of ten permits, at another bucket each time.
fn small_buckets(permits: u32) -> Call {
    let small = |_| {
        let limiter = RateLimiter::new(TokenBucket::new(Rate::per_second(0.01), 10));
        // Levels are recorded from the second call on.
        (0..2).for_each(|_| _ = limiter.try_acquire(permits).expect("a full bucket"));
        limiter
    };
    let limiters: Vec<_> = (0..2 * CALLS * BATCHES as u64).map(small).collect();
    with((limiters, Cell::new(0)), move |(limiters, calls)| {
        let limiter = limiters.get(calls.replace(calls.get() + 1));
        limiter.is_some_and(|limiter| limiter.try_acquire(permits).is_ok())
    })
}

/// A thousand keys, for calls in turn: none is ever idle.
fn keyed_bucket() -> KeyedRateLimiter<u64, TokenBucket> {
    let limiter = KeyedRateLimiter::new(TokenBucket::new(Rate::every(MINUTE), u32::MAX));
    (0..1_000).for_each(|key| drop(limiter.try_acquire(&key, 1)));
    limiter
}

fn without_type(
    limiter: impl Limiter<Cost = u32, Grant: 'static> + Debug + 'static,
) -> AnyRateLimiter {
    AnyRateLimiter::new(limiter)
}

type OwnedCall = Acquire<RateLimiter<SmoothBursty>>;

/// A limiter that grants a permit for each second that its clock goes on, and none before.
struct Queue {
    limiter: RateLimiter<SmoothBursty>,
    clock: ManualClock,
    /// Those that wait, in order. Boxed beforehand: no count has an allocation of this file.
    callers: RefCell<VecDeque<Pin<Box<Option<OwnedCall>>>>>,
}

fn queue_of(callers: usize) -> Queue {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(1.0)), &clock);
    limiter.try_acquire(1).expect("the first is granted");
    let join = |_| {
        let mut caller = Box::pin(Some(limiter.acquire_owned(1)));
        assert!(caller.as_mut().as_pin_mut().is_some_and(is_waiting));
        caller
    };
    let callers = RefCell::new((0..callers).map(join).collect());
    Queue { limiter, clock, callers }
}

/// Polls once, and drops the call and its grant.
#[inline(always)]
fn is_granted<G>(call: impl Future<Output = Result<G, Error>>) -> bool {
    matches!(poll_once(pin!(call)), Poll::Ready(Ok(_)))
}

/// The same for a call that must wait. One that is passed by value leaves the queue.
#[inline(always)]
fn is_waiting<G>(call: impl Future<Output = Result<G, Error>>) -> bool {
    poll_once(pin!(call)).is_pending()
}

#[inline(always)]
fn poll_once<F: Future>(call: Pin<&mut F>) -> Poll<F::Output> {
    call.poll(&mut Context::from_waker(Waker::noop()))
}

fn on<P: Policy>(policy: P, call: impl Fn(&RateLimiter<P>) -> bool + 'static) -> Call {
    with(RateLimiter::new(policy), call)
}

/// On a limiter that refuses for the next minute.
fn on_exhausted<P: Policy<Cost = u32>>(
    policy: P,
    permits: u32,
    call: impl Fn(&RateLimiter<P>) -> bool + 'static,
) -> Call {
    let limiter = RateLimiter::new(policy);
    limiter.try_acquire(permits).expect("the first is granted");
    with(limiter, call)
}

fn with<T: 'static>(it: T, call: impl Fn(&T) -> bool + 'static) -> Call {
    Box::new(move || call(black_box(&it)))
}

/// What any exact decision must at least do: one reading of the clock, one compare-exchange.
fn floor() -> Call {
    let clock = quanta::Clock::new();
    let origin = clock.raw();
    with((clock, origin, AtomicU64::new(0)), |(clock, origin, word)| {
        let now = clock.delta_as_nanos(*origin, clock.raw());
        let old = word.load(Ordering::Acquire);
        word.compare_exchange(old, now, Ordering::AcqRel, Ordering::Acquire).is_ok()
    })
}

const BATCHES: usize = 64;
const CALLS: u64 = 16;

/// Callgrind counts from the entry of this function to its end.
#[inline(never)]
fn counted_batch(call: &dyn Fn() -> bool) {
    for _ in 0..CALLS {
        black_box(call());
    }
}

/// At its entry callgrind writes down what it has counted, and begins at zero. A function of its own,
/// as callgrind heeds one option for a pattern of names.
#[inline(never)]
fn end_of_batch() {
    black_box(());
}

/// All that is counted, in order.
fn rows() -> impl Iterator<Item = Row> {
    let nothing: Row = ("nothing", 0, || with((), |()| true));
    [nothing, ("floor", 0, floor)].into_iter().chain(PATHS.iter().copied())
}

/// Valgrind shows the processor's counter only where the processor says that it runs evenly.
const NO_COUNTER: &str = "valgrind shows no invariant counter here";

/// The program under callgrind.
fn run_batches() -> Result<(), String> {
    // Valgrind imitates a processor that it chooses. One without a counter takes other paths.
    let clock = format!("{:?}", quanta::Clock::new());
    if !clock.contains("Counter(") {
        return Err(format!("{NO_COUNTER}, but {clock}"));
    }
    for (name, _, call) in rows() {
        let call = call();
        for _ in 0..BATCHES {
            // Not counted. Sets the clock, which is not trusted after the time that a dump takes.
            for _ in 0..CALLS {
                if !call() {
                    return Err(format!("{name}: the call went another way"));
                }
            }
            counted_batch(&call);
            end_of_batch();
        }
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(output),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{name}: {}\n{said}", output.status))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("{name} is not installed: ./benches/instructions does that"))
        }
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// The instructions of the smallest batch of each that is counted.
fn count(program: &Path) -> Result<Vec<u64>, String> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("callgrind.out");
    // Callgrind would append to it.
    let _ = fs::remove_file(&file);
    output(
        Command::new("valgrind")
            .args(["-q", "--tool=callgrind", "--cache-sim=no", "--branch-sim=no"])
            .args(["--toggle-collect=*counted_batch*", "--dump-before=*end_of_batch*"])
            .arg("--combine-dumps=yes")
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(program)
            .arg(UNDER_CALLGRIND),
    )?;
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let sums = text.lines().filter_map(|line| line.strip_prefix("summary: "));
    let mut sums: Vec<u64> = sums.filter_map(|sum| sum.trim().parse().ok()).collect();
    // The last is of the end of the program.
    sums.pop();
    if sums.len() != BATCHES * rows().count() || sums.contains(&0) {
        return Err(format!("{}: not one sum for each batch", file.display()));
    }
    Ok(sums.chunks(BATCHES).filter_map(|batches| batches.iter().min().copied()).collect())
}

/// Prints the table. Returns the paths over their limits.
fn judge_paths(program: &Path) -> Result<Vec<String>, String> {
    let batches = count(program)?;
    let a_call = |batch: u64| (batch.saturating_sub(batches[0])).div_ceil(CALLS);
    let floor = a_call(batches[1]);
    // Tenths, rounded down.
    let of_floor = |count: u64| format!("{}.{}", count / floor, count * 10 / floor % 10);
    let mut over = Vec::new();
    println!("{:38}{:>12}{:>9}{:>9}", "path", "instructions", "at most", "x floor");
    println!("{:38}{floor:>12}{:>9}{:>9}", "floor", "", of_floor(floor));
    for (&(name, limit, _), &batch) in PATHS.iter().zip(&batches[2..]) {
        let count = a_call(batch);
        println!("{name:38}{count:>12}{limit:>9}{:>9}", of_floor(count));
        if count > limit {
            over.push(format!("{name}: {count} instructions, at most {limit}"));
        }
    }
    Ok(over)
}

/// The same for the sizes.
fn judge_sites(program: &Path) -> Result<Vec<String>, String> {
    let symbols = output(Command::new("nm").arg("--print-size").arg(program))?;
    let symbols = String::from_utf8_lossy(&symbols.stdout);
    let mut over = Vec::new();
    println!("\n{:38}{:>12}{:>9}", "inlined", "bytes", "at most");
    for &(name, limit) in SITES {
        // Address, size, kind, name. If a cold part is split off, it has a symbol that begins alike.
        let sizes = symbols.lines().filter(|line| line.contains(name));
        let sizes = sizes.filter_map(|line| line.split_whitespace().nth(1));
        let size: u64 = sizes.filter_map(|size| u64::from_str_radix(size, 16).ok()).sum();
        if size == 0 {
            return Err(format!("{}: no symbol {name}", program.display()));
        }
        println!("{name:38}{size:>12}{limit:>9}");
        if size > limit {
            over.push(format!("{name}: {size} bytes, at most {limit}"));
        }
    }
    Ok(over)
}

fn judge() -> Result<(), String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut over = match judge_paths(&program) {
        Err(error) if error.contains(NO_COUNTER) => {
            println!("paths NOT JUDGED: {error}");
            Vec::new()
        }
        paths => paths?,
    };
    over.extend(judge_sites(&program)?);
    if !JUDGED {
        println!("\nNOT JUDGED: the limits are those of another target");
    } else if !over.is_empty() {
        return Err(over.join("\n"));
    }
    Ok(())
}

const UNDER_CALLGRIND: &str = "--under-callgrind";

fn main() -> ExitCode {
    keep_sites();
    let under_callgrind = env::args().any(|argument| argument == UNDER_CALLGRIND);
    match if under_callgrind { run_batches() } else { judge() } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\n{error}");
            ExitCode::FAILURE
        }
    }
}
