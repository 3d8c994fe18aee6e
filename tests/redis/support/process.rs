//! A process that ends when its owner does, for any reason.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::until;

/// Sends a signal by name, such as `STOP`.
pub(crate) fn signal(pid: u32, name: &str) {
    // The shell's own `kill`: the program of that name is not installed everywhere.
    let status = Command::new("sh")
        .args(["-c", r#"kill -"$1" "$2""#, "sh", name, &pid.to_string()])
        .status()
        .expect("a shell starts");
    assert!(status.success(), "SIG{name} to process {pid}: {status}");
}

/// Returns when the process stands still. Where the system does not show it, that is soon.
pub(crate) fn stop(pid: u32) {
    signal(pid, "STOP");
    let path = format!("/proc/{pid}/stat");
    until("the process stands still", || {
        // The state follows the name, which is in brackets and may contain some.
        fs::read_to_string(&path)
            .map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T')))
    });
}

/// A shell between the two: it prints the pid, and kills when its input ends, which the system sees
/// to even if the owner is killed. It ends with the status of the process, so that an end is
/// noticed too.
const SHELL: &str = r#"
log=$1
shift
exec 3<&0
"$@" </dev/null >"$log" 2>&1 3<&- &
process=$!
{ read -r _ <&3; kill -KILL "$process"; } &
guard=$!
echo "$process"
exec >&- 3<&-
wait "$process"
status=$?
kill -KILL "$guard"
wait "$guard"
exit "$status"
"#;

pub(super) struct Process {
    shell: Child,
    pid: u32,
}

impl Process {
    /// Starts `program`, its output going to `log`. A program that is not there ends with status 127.
    pub(super) fn start(program: &OsStr, arguments: &[String], log: &Path) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", SHELL, "sh"])
            .arg(log)
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        let mut line = String::new();
        let output = shell.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("the shell prints the pid");
        let pid = line.trim().parse().expect("the shell prints the pid");
        Self { shell, pid }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it has.
    pub(super) fn status(&mut self) -> Option<ExitStatus> {
        self.shell.try_wait().expect("the shell is our child")
    }

    /// SIGKILL. Returns when the process is gone and its ports are free.
    pub(super) fn kill(&mut self) {
        // The end of the shell's input; the shell reaps the process.
        drop(self.shell.stdin.take());
        until("a killed process is gone", || self.status().is_some());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
