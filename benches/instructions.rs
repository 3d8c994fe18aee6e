//! How many instructions does a call take?
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

use std::cell::Cell;
use std::env;
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
    Error, KeyedRateLimiter, ManualClock, Policy, Rate, RateLimiter, SmoothBursty, TokenBucket,
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
    ("acquire, ready", 92, || {
        on(bursty(), |limiter| poll_once(pin!(limiter.acquire(1))).is_ready())
    }),
    ("try_acquire, granted", 80, || on(bursty(), |limiter| limiter.try_acquire(1).is_ok())),
    ("try_acquire, refused", 77, || {
        let limiter = RateLimiter::new(SmoothBursty::new(Rate::every(MINUTE)));
        limiter.try_acquire(1).expect("the first is granted");
        with(limiter, |limiter| limiter.try_acquire(1).is_err())
    }),
    // Nineteen more, and fourteen if refused, than with parking_lot: the standard library's mutex looks for panics, and is 9 KB
    // less of a program.
    ("at a key, try_acquire, granted", 231, || {
        at_keys(TokenBucket::new(Rate::every(MINUTE), u32::MAX), |limiter, key| {
            limiter.at(key).try_acquire(1).is_ok()
        })
    }),
    // With the time to wait, which this caller does not look at.
    ("at a key, try_acquire, refused", 211, || {
        at_keys(SmoothBursty::new(Rate::every(MINUTE)), |limiter, key| {
            limiter.at(key).try_acquire(1).is_err()
        })
    }),
    // Four hundred more than in a linked list: the place in the order, the deadline and the key are kept for each waiter.
    ("joins the queue, waits, is granted", 3707, || {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(1.0)), &clock);
        limiter.try_acquire(1).expect("the first is granted");
        with((limiter, clock), |(limiter, clock)| {
            let mut caller = pin!(limiter.acquire(1));
            let waited = poll_once(caller.as_mut()).is_pending();
            clock.advance(SECOND);
            waited && is_granted(caller)
        })
    }),
    // One that a server takes, and whose answer says nothing about limits.
    #[cfg(feature = "feedback")]
    ("a call and its answer, through a Feedback", 2490, || {
        let limiter = RateLimiter::new(TokenBucket::new(Rate::per_second(1e9), u32::MAX));
        with(tollgate::feedback::Feedback::new(limiter), |feedback| {
            let Poll::Ready(Ok(mut call)) = poll_once(pin!(feedback.acquire(1))) else {
                return false;
            };
            let none: [(&str, &str); 0] = [];
            matches!(poll_once(pin!(call.observe(200u16, &none))), Poll::Ready(answer) if answer.is_accepted())
        })
    }),
];

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Fast enough that the permit is always there.
fn bursty() -> SmoothBursty {
    SmoothBursty::new(Rate::per_second(1e9))
}

/// Calls at a thousand keys in turn. Each key has had one call before, and none is ever idle.
fn at_keys<P: Policy<Cost = u32>>(
    policy: P,
    call: impl Fn(&KeyedRateLimiter<u64, P>, &u64) -> bool + 'static,
) -> Call {
    let limiter = KeyedRateLimiter::new(policy);
    (0..1_000).for_each(|key| drop(limiter.at(&key).try_acquire(1)));
    with((limiter, Cell::new(0)), move |(limiter, calls)| {
        call(limiter, &(calls.replace(calls.get() + 1) % 1_000))
    })
}

/// Polls once, and drops the call and its grant.
#[inline(always)]
fn is_granted<G>(call: impl Future<Output = Result<G, Error>>) -> bool {
    matches!(poll_once(pin!(call)), Poll::Ready(Ok(_)))
}

#[inline(always)]
fn poll_once<F: Future>(call: Pin<&mut F>) -> Poll<F::Output> {
    call.poll(&mut Context::from_waker(Waker::noop()))
}

fn on<P: Policy>(policy: P, call: impl Fn(&RateLimiter<P>) -> bool + 'static) -> Call {
    with(RateLimiter::new(policy), call)
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
    println!("{:44}{:>12}{:>9}{:>9}", "path", "instructions", "at most", "x floor");
    println!("{:44}{floor:>12}{:>9}{:>9}", "floor", "", of_floor(floor));
    for (&(name, limit, _), &batch) in PATHS.iter().zip(&batches[2..]) {
        let count = a_call(batch);
        println!("{name:44}{count:>12}{limit:>9}{:>9}", of_floor(count));
        if count > limit {
            over.push(format!("{name}: {count} instructions, at most {limit}"));
        }
    }
    Ok(over)
}

fn judge() -> Result<(), String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let over = match judge_paths(&program) {
        Err(error) if error.contains(NO_COUNTER) => {
            println!("NOT JUDGED: {error}");
            return Ok(());
        }
        paths => paths?,
    };
    if !JUDGED {
        println!("\nNOT JUDGED: the limits are those of another target");
    } else if !over.is_empty() {
        return Err(over.join("\n"));
    }
    Ok(())
}

const UNDER_CALLGRIND: &str = "--under-callgrind";

fn main() -> ExitCode {
    let under_callgrind = env::args().any(|argument| argument == UNDER_CALLGRIND);
    match if under_callgrind { run_batches() } else { judge() } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\n{error}");
            ExitCode::FAILURE
        }
    }
}
