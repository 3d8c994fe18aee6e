//! A wall clock of a server's own, by a library that it is started with. Linux only.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

pub(super) struct Clock {
    /// By how many seconds it is off.
    offset: PathBuf,
}

impl Clock {
    /// One that is right.
    pub(super) fn within(directory: &Path) -> Self {
        let clock = Self { offset: directory.join("clock") };
        clock.set(0);
        clock
    }

    /// How far it is off from now on.
    pub(super) fn set(&self, seconds: i64) {
        // A file that is written to is empty for a moment.
        let new = self.offset.with_extension("new");
        let written = fs::write(&new, seconds.to_ne_bytes());
        written.and_then(|()| fs::rename(&new, &self.offset)).expect("our own directory");
    }

    /// The environment of a process that uses it.
    pub(super) fn environment(&self) -> [String; 2] {
        [
            format!("LD_PRELOAD={}", library().display()),
            format!("TOLLGATE_CLOCK={}", self.offset.display()),
        ]
    }
}

/// Compiled once: only Rust is sure to be there.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // Beside this program, where the compiler has written before.
        let library =
            env::current_exe().expect("it has a name").with_file_name("libshifted_time.so");
        // Others may compile it at the same time.
        let new = library.with_extension(process::id().to_string());
        let source = library.with_extension(format!("{}.rs", process::id()));
        fs::write(&source, include_str!("shifted_time.rs")).expect("beside the program");
        let beside_cargo = Path::new(env!("CARGO")).with_file_name("rustc");
        let rustc = env::var_os("RUSTC").map(PathBuf::from);
        let rustc = rustc.or_else(|| beside_cargo.exists().then_some(beside_cargo));
        let output = Command::new(rustc.unwrap_or_else(|| "rustc".into()))
            .args([
                "--crate-name",
                "shifted_time",
                "--edition",
                "2024",
                "--crate-type",
                "cdylib",
                "-O",
                "-o",
            ])
            .arg(&new)
            .arg(&source)
            .output()
            .expect("a compiler starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {}\n{errors}", source.display(), output.status);
        fs::remove_file(source).expect("it was written");
        fs::rename(&new, &library).expect("the build directory can be written");
        library
    })
}
