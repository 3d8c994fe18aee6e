//! A server as a child process on a loopback port, and what stands behind proxies.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::{any, get};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::setup::Group;

/// Longer than any run: nothing is left if this program is killed.
const LIFE: &str = "600";
const START: Duration = Duration::from_secs(120);

/// Ends the child, and what it has started, when it is dropped.
pub struct Server {
    child: Child,
    pub port: u16,
    pub dir: PathBuf,
    env: BTreeMap<String, String>,
}

/// Starts a shell command in a process group of its own.
fn spawn(start: &str, env: &BTreeMap<String, String>, dir: &Path) -> Child {
    let log = File::create(dir.join("log")).expect("a log");
    Command::new("timeout")
        .args([LIFE, "bash", "-c", start])
        .envs(env)
        .current_dir(work())
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .process_group(0)
        .spawn()
        .expect("timeout and bash")
}

/// A port that was free just now.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// The temp folder in which all is installed.
pub fn work() -> PathBuf {
    PathBuf::from(std::env::var("SERVERS_WORK").expect("`./run` sets SERVERS_WORK"))
}

impl Server {
    pub async fn start(
        group: &Group,
        env: &BTreeMap<String, String>,
        run: &str,
        backend: u16,
    ) -> Result<Self, String> {
        let dir = work().join("runs").join(run);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a folder");
        let port = free_port();
        let mut env: BTreeMap<String, String> =
            group.env.clone().into_iter().chain(env.clone()).collect();
        env.insert("PORT".to_owned(), port.to_string());
        env.insert("PORT2".to_owned(), free_port().to_string());
        env.insert("BACKEND".to_owned(), backend.to_string());
        env.insert("DIR".to_owned(), dir.display().to_string());
        env.insert(
            "HERE".to_owned(),
            std::env::current_dir().expect("a folder").display().to_string(),
        );
        for file in &group.files {
            let mut text = fs::read_to_string(file).expect("a template");
            for (name, value) in &env {
                text = text.replace(&format!("${{{name}}}"), value);
            }
            let name = PathBuf::from(file);
            fs::write(dir.join(name.file_name().expect("a file")), text).expect("a file");
        }
        let child = spawn(&group.start, &env, &dir);
        let mut server = Self { child, port, dir, env };
        server.wait_until_ready(group.ready.as_deref()).await?;
        Ok(server)
    }

    /// Kills it, and starts it again on its port.
    pub async fn restart(&mut self, group: &Group) -> Result<(), String> {
        self.signal("-KILL");
        let _ = self.child.wait();
        self.child = spawn(&group.start, &self.env, &self.dir);
        self.wait_until_ready(group.ready.as_deref()).await
    }

    async fn is_ready(&self, path: Option<&str>) -> bool {
        let Some(path) = path else {
            return TcpStream::connect(("127.0.0.1", self.port)).await.is_ok();
        };
        let answer = reqwest::get(format!("http://127.0.0.1:{}/{path}", self.port)).await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    async fn wait_until_ready(&mut self, path: Option<&str>) -> Result<(), String> {
        let start = Instant::now();
        while !self.is_ready(path).await {
            let has_ended = self.child.try_wait().expect("a child").is_some();
            if has_ended || start.elapsed() > START {
                let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                let tail: Vec<_> = log.lines().rev().take(12).collect();
                return Err(tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn signal(&self, name: &str) {
        // The group is the child's own.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args([name, "--", &group]).stderr(Stdio::null()).status();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal("-TERM");
        let start = Instant::now();
        while self.child.try_wait().is_ok_and(|status| status.is_none()) {
            if start.elapsed() > Duration::from_secs(3) {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.signal("-KILL");
        let _ = self.child.wait();
    }
}

/// What proxies pass calls to: `/slow` takes some time.
pub async fn backend(slow: Duration) -> u16 {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let slow = move || async move {
        sleep(slow).await;
        "ok\n"
    };
    let app = Router::new().route("/slow", get(slow)).fallback(any(|| async { "ok\n" }));
    tokio::spawn(async { axum::serve(listener, app).await });
    port
}
