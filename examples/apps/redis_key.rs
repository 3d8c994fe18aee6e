//! Shows the state of a limiter's key in Redis, or deletes it, without the program that uses it. To look changes
//! nothing. A composed policy is known only to a program with its type: call `inspect` and `reset` there.
//!
//! ```text
//! cargo run -p examples --bin redis_key -- redis://127.0.0.1/ quota:search
//! cargo run -p examples --bin redis_key -- redis://127.0.0.1/ quota:search --reset
//! ```

use std::error::Error as StdError;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tollgate::redis::{KeyState, Reconnecting, RedisRateLimiter, Scripted};
use tollgate::{
    Error, FixedWindow, Gcra, InFlight, LeakyBucket, Rate, SlidingWindowCounter, SlidingWindowLog,
    SmoothBursty, SmoothWarmingUp, TokenBucket,
};

#[derive(Parser)]
#[command(about = "Shows a limiter's key in Redis, or deletes it")]
struct Arguments {
    /// The address of the server, such as `redis://user:password@host:6379/0`
    url: String,
    key: String,
    /// Deletes the key, after its state is shown: the limit is unused again for the whole fleet
    #[arg(long)]
    reset: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Err(error) = run(Arguments::parse()).await else { return ExitCode::SUCCESS };
    match error.source() {
        Some(cause) => eprintln!("error: {error}: {cause}"),
        None => eprintln!("error: {error}"),
    }
    ExitCode::FAILURE
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn StdError>> {
    let connection = Reconnecting::open(&arguments.url)?;
    let (rate, second) = (Rate::per_second(1.0), Duration::from_secs(1));
    // Only their kinds matter: the parameters are those in the key.
    macro_rules! try_each {
        ($($policy:expr),* $(,)?) => {
            $(if show(&arguments, &connection, $policy).await? { return Ok(()); })*
        };
    }
    try_each!(
        SmoothBursty::new(rate),
        SmoothWarmingUp::new(rate, second),
        TokenBucket::new(rate, 1),
        Gcra::new(1, 1, second),
        LeakyBucket::new(rate, 1),
        FixedWindow::new(1, second),
        SlidingWindowLog::new(1, second),
        SlidingWindowCounter::new(1, second, 1),
        InFlight::new(1),
    );
    Err(format!("{} is a composed policy's, or not a limiter's", arguments.key).into())
}

/// Whether the key is one of this kind of policy, or absent.
async fn show<P>(arguments: &Arguments, connection: &Reconnecting, policy: P) -> Result<bool, Error>
where
    P: Scripted<Cost = u32> + Debug,
{
    let limiter = RedisRateLimiter::new(policy, connection.clone(), &arguments.key);
    let state = match limiter.inspect().await {
        Err(Error::Store(error)) if !error.is_unavailable() => return Ok(false),
        state => state?,
    };
    let KeyState { policy, quota, paused_for, expires_in, .. } = state;
    let Some(expires_in) = expires_in else {
        println!("there is no such key: its limit is unused");
        return Ok(true);
    };
    println!("policy      {policy:?}");
    println!("left        {} of {}", quota.remaining, quota.limit);
    match quota.reset_after {
        Some(time) => println!("all left    in {time:.1?}"),
        None => println!("all left    when permits in flight come back"),
    }
    if !paused_for.is_zero() {
        println!("paused      for {paused_for:.1?}");
    }
    println!("kept        for {expires_in:.1?} at least");
    if arguments.reset {
        limiter.reset().await?;
        println!("deleted");
    }
    Ok(true)
}
