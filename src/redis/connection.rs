//! What scripts are sent over: one small trait between the limiter and redis-rs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle;

use super::script::Script;
use crate::error::store::StoreError;
use crate::sync::Mutex;

/// What a [`RedisRateLimiter`](super::RedisRateLimiter) sends its scripts over.
///
/// Every asynchronous connection of redis-rs that can be cloned is one: `ConnectionManager`,
/// `ClusterConnection`, and `MultiplexedConnection`, which does not come back once it is cut.
/// [`Reconnecting`](super::Reconnecting) and [`Blocking`](super::Blocking) are here. What is charged must
/// be charged once: an implementation **never sends a request again** that may have reached the server.
/// redis-rs's cluster client does that by itself unless it is told `ClusterClientBuilder::retries(0)`.
///
/// ```
/// use tollgate::redis::Connection;
///
/// fn is_connection<C: Connection>() {}
/// is_connection::<redis::aio::MultiplexedConnection>();
/// is_connection::<tollgate::redis::Reconnecting>();
/// is_connection::<tollgate::redis::Blocking>();
/// ```
pub trait Connection: Clone + Send + Sync + 'static {
    /// Runs a script, and answers within [`Request::deadline`].
    fn run(&self, request: &Request) -> impl Future<Output = Result<Reply, Failure>> + Send;

    /// Runs a task that sends requests to its end, whoever is polled meanwhile. By default on the tokio
    /// runtime of the caller, or the one in which the limiter was last used.
    fn spawn(&self, runtime: &Runtime, task: Task) {
        runtime.spawn(task);
    }
}

/// Something to be run to its end.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One run of a script.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// What to run.
    pub script: Arc<Script>,
    /// The one key.
    pub key: Arc<str>,
    /// The arguments.
    pub arguments: Vec<Vec<u8>>,
    /// How long it may take at most.
    pub deadline: Duration,
}

impl Request {
    pub(super) fn new(script: Arc<Script>, key: Arc<str>, deadline: Duration) -> Self {
        Self { script, key, arguments: Vec::new(), deadline }
    }

    /// `EVALSHA`, or `EVAL` with the whole text.
    #[must_use]
    pub fn command(&self, whole: bool) -> Cmd {
        let (name, script) = match whole {
            true => ("EVAL", self.script.text()),
            false => ("EVALSHA", self.script.digest()),
        };
        let mut command = Cmd::with_capacity(4 + self.arguments.len(), 256);
        command.arg(name).arg(script).arg(1).arg(&*self.key);
        for argument in &self.arguments {
            command.arg(argument.as_slice());
        }
        command
    }
}

/// What a script answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// A number.
    Number(i64),
    /// Numbers.
    Numbers(Vec<i64>),
    /// That the key's policy is not the caller's: a word, a generation, parameters.
    Told(String, i64, Vec<u8>),
}

impl TryFrom<Value> for Reply {
    type Error = Failure;

    fn try_from(value: Value) -> Result<Self, Failure> {
        match value {
            Value::Int(number) => Ok(Self::Number(number)),
            Value::Array(items) if matches!(items.first(), Some(Value::Int(_))) => {
                let numbers = items.iter().map(|item| match item {
                    Value::Int(number) => Ok(*number),
                    other => Err(Failure::strange(other)),
                });
                numbers.collect::<Result<_, _>>().map(Self::Numbers)
            }
            Value::Array(items) => {
                let mut items = items.into_iter();
                let (word, generation, parameters) = (items.next(), items.next(), items.next());
                let Some(Value::BulkString(word)) = word else {
                    return Err(Failure::strange(&Value::Nil));
                };
                let generation = if let Some(Value::Int(number)) = generation { number } else { 0 };
                let parameters = match parameters {
                    Some(Value::BulkString(bytes)) => bytes,
                    _ => Vec::new(),
                };
                Ok(Self::Told(String::from_utf8_lossy(&word).into_owned(), generation, parameters))
            }
            other => Err(Failure::strange(&other)),
        }
    }
}

/// Whether a request that failed has been carried out all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Certainly not: it may be sent again.
    None,
    /// Perhaps: what it asked for counts as charged.
    Unknown,
}

/// Why a request has no answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Whether it was carried out.
    pub effect: Effect,
    /// Whether the key is to blame and not the server: it holds something else.
    pub key: bool,
    /// What happened.
    pub source: Arc<dyn std::error::Error + Send + Sync>,
}

impl Failure {
    /// The server, or the way to it, is to blame.
    #[must_use]
    pub fn new(effect: Effect, source: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self { effect, key: false, source: source.into() }
    }

    pub(super) fn strange(answer: &impl std::fmt::Debug) -> Self {
        Self::new(Effect::Unknown, format!("the script answered {answer:?}").into())
    }

    pub(super) fn late(deadline: Duration) -> Self {
        Self::new(Effect::Unknown, format!("no answer within {deadline:?}").into())
    }

    /// What callers at `key` get.
    pub(super) fn error(&self, key: &Arc<str>) -> StoreError {
        let source = Arc::clone(&self.source);
        match self.key {
            true => StoreError::foreign(key, Some(source)),
            false => StoreError::unavailable(key, self.effect == Effect::Unknown, source),
        }
    }
}

impl From<RedisError> for Failure {
    /// A script writes once, as the last thing that can fail: an error of the server's means that it
    /// did not. Nor did it where there was no connection to send it over. Errors of other kinds may also be
    /// those of redis-rs's own search for the nodes of a cluster, with which it ends what it has sent.
    fn from(error: RedisError) -> Self {
        let refused = error.code().is_some()
            || error.is_connection_refusal()
            || error.kind() == ErrorKind::ClusterConnectionNotFound;
        let effect = if refused { Effect::None } else { Effect::Unknown };
        let said = said_in_script(&error);
        // A script that stumbles over what it reads is not the server's fault either.
        let stumbled = said.or(error.detail()).is_some_and(|text| text.starts_with("user_script"));
        let key = error.code() == Some("WRONGTYPE")
            || said.is_some_and(|text| text.starts_with("WRONGTYPE "))
            || stumbled;
        Self { effect, key, source: Arc::new(error) }
    }
}

/// What failed in a script, code and all, if the server is a Redis before 7. That says only that a script
/// did, `ERR Error running script (call to f_5f…): @user_script:4: WRONGTYPE Operation …`, with
/// `@user_script: 4: -READONLY You can't …` at the end where it refuses a command and not the command itself.
fn said_in_script(error: &RedisError) -> Option<&str> {
    let failed = error.detail()?.strip_prefix("Error running script (call to f_")?;
    let (_, placed) = failed.split_once("): @user_script:")?;
    let (_, said) = placed.split_once(": ")?;
    let refused = said.strip_prefix("@user_script: ").and_then(|placed| placed.split_once(": -"));
    Some(refused.map_or(said, |(_, refused)| refused))
}

/// Whether the server has become a replica, which another connection may not lead to.
pub(super) fn is_demoted(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || said_in_script(error).is_some_and(|text| text.starts_with("READONLY "))
}

/// The tokio runtime in which a limiter was last used.
#[derive(Debug, Default)]
pub struct Runtime(Mutex<Option<Handle>>);

impl Runtime {
    /// Remembers the runtime of the caller, if it is in one.
    pub(super) fn remember(&self) {
        if let Ok(handle) = Handle::try_current() {
            *self.0.lock() = Some(handle);
        }
    }

    /// Spawns a task on the caller's runtime, or the one remembered; drops it if there is none.
    pub fn spawn(&self, task: Task) {
        let handle = Handle::try_current().ok().or_else(|| self.0.lock().clone());
        if let Some(handle) = handle {
            drop(handle.spawn(task));
        }
    }
}

/// `EVALSHA`, and `EVAL` if the server does not know the script: that was not carried out.
pub(super) async fn evaluate<F: Future<Output = Result<Value, RedisError>>>(
    request: &Request,
    mut send: impl FnMut(Cmd) -> F,
) -> Result<Value, RedisError> {
    match send(request.command(false)).await {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            send(request.command(true)).await
        }
        outcome => outcome,
    }
}

pub(super) async fn send(
    mut connection: impl ConnectionLike,
    command: Cmd,
) -> Result<Value, RedisError> {
    connection.req_packed_command(&command).await.and_then(Value::extract_error)
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connection for C {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        let outcome = evaluate(request, |command| send(self.clone(), command));
        match tokio::time::timeout(request.deadline, outcome).await {
            Ok(outcome) => outcome?.try_into(),
            Err(_) => Err(Failure::late(request.deadline)),
        }
    }
}

/// A connection over which nothing has come for so long is tried before it is used: servers, and what is on the
/// way to them, close those that are idle, and some of them without a word.
pub(super) const IDLE: Duration = Duration::from_secs(10);

/// Whether somebody was there to answer, whatever was said: that `PING` is not permitted, too.
pub(super) fn is_answer<T>(outcome: &Result<T, RedisError>) -> bool {
    outcome.as_ref().map_or_else(|error| error.code().is_some(), |_| true)
}

pub(super) fn without_delay(client: Client) -> Result<Client, RedisError> {
    let info = client.get_connection_info().clone();
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Client::open(info.set_tcp_settings(tcp))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::ConnectionRefused;

    use super::*;

    fn effect(error: impl Into<RedisError>) -> Effect {
        Failure::from(error.into()).effect
    }

    #[test]
    fn only_what_is_certain_is_sent_again() {
        for kind in [ServerErrorKind::Ask, ServerErrorKind::NoPerm, ServerErrorKind::ReadOnly] {
            assert_eq!(effect((ErrorKind::Server(kind), "")), Effect::None, "{kind:?}");
        }
        let unknown_to_redis_rs = redis::make_extension_error("OOM".to_owned(), None);
        assert_eq!(effect(unknown_to_redis_rs), Effect::None);
        assert_eq!(effect(std::io::Error::from(ConnectionRefused)), Effect::None);
        assert_eq!(effect((ErrorKind::ClusterConnectionNotFound, "")), Effect::None);
        for kind in [
            ErrorKind::AuthenticationFailed,
            ErrorKind::Client,
            ErrorKind::InvalidClientConfig,
            ErrorKind::Io,
            ErrorKind::Parse,
        ] {
            assert_eq!(effect((kind, "")), Effect::Unknown, "{kind:?}");
        }
    }

    fn failed(said: &str) -> RedisError {
        let said = format!("-{said}\r\n");
        let answer = redis::parse_redis_value(said.as_bytes()).expect("an answer");
        answer.extract_error().expect_err("an error")
    }

    /// As Redis 6, 7 and 8 and Valkey 8 and 9 put it.
    #[test]
    fn what_failed_in_a_script_is_read_from_every_server() {
        const OLD: &str = "ERR Error running script (call to f_6838a82d): @user_script:4: ";
        let ends = [" script: 6838a82d, on @user_script:4.", " script: on @user_script:4.", ""];

        let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        let stumbled = "user_script:4: attempt to perform arithmetic on a nil value";
        let demoted = "READONLY You can't write against a read only replica.";
        let full = "OOM command not allowed when used memory > 'maxmemory'.";
        let olds = [
            format!("{OLD}{wrong}"),
            format!("{OLD}{stumbled}"),
            format!("{OLD}@user_script: 4: -{demoted}"),
            format!("{OLD}@user_script: 4: -{full}"),
        ];
        let news = ends.map(|end| {
            [wrong, &format!("ERR {stumbled}"), demoted, full].map(|said| format!("{said}{end}"))
        });
        for [wrong, stumbled, demoted, full] in news.into_iter().chain([olds]) {
            for (said, of_key, leave) in [
                (wrong, true, false),
                (stumbled, true, false),
                (demoted, false, true),
                (full, false, false),
            ] {
                let error = failed(&said);
                assert_eq!(is_demoted(&error), leave, "{said}");
                let failure = Failure::from(error);
                assert_eq!((failure.effect, failure.key), (Effect::None, of_key), "{said}");
            }
        }
    }
}
