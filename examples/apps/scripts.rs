//! Writes the script of each policy as Redis runs it. `Gcra` has that of `TokenBucket`, and the two sliding
//! windows share one.
//!
//! ```text
//! cargo run -p examples --bin scripts    # writes docs/scripts/*.lua
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;

use tollgate::redis::Scripted;
use tollgate::{
    FixedWindow, InFlight, LeakyBucket, LockOut, Same, SlidingWindowLog, SmoothBursty,
    SmoothWarmingUp, TokenBucket,
};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scripts"));
    fs::create_dir_all(folder)?;
    let scripts = [
        ("smooth_bursty", SmoothBursty::lua()),
        ("smooth_warming_up", SmoothWarmingUp::lua()),
        ("token_bucket", TokenBucket::lua()),
        ("leaky_bucket", LeakyBucket::lua()),
        ("fixed_window", FixedWindow::lua()),
        ("sliding_window", SlidingWindowLog::lua()),
        ("in_flight", InFlight::lua()),
        ("lock_out", LockOut::<TokenBucket>::lua()),
        ("tuple", <(SlidingWindowLog, InFlight)>::lua()),
        ("same", Same::<(TokenBucket, FixedWindow)>::lua()),
    ];
    for (name, lua) in scripts {
        fs::write(folder.join(name).with_extension("lua"), lua.script())?;
        println!("{name}");
    }
    Ok(())
}
