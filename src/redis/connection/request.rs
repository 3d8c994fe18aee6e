//! Requests to the server, and its replies.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::failure::Failure;

/// A script: its text, and the digest by which the server knows it.
#[derive(Debug)]
pub struct Script {
    text: String,
    digest: String,
}

impl Script {
    pub(crate) fn new(text: String) -> Self {
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { text, digest }
    }

    /// What `EVAL` takes.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What `EVALSHA` takes.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// One run of a script.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The script.
    pub script: Arc<Script>,
    /// Its only key.
    pub key: Arc<str>,
    /// The arguments.
    pub arguments: Vec<Vec<u8>>,
    /// The maximum time until the reply.
    pub deadline: Duration,
}

impl Request {
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

/// The reply of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// A number.
    Number(i64),
    /// Numbers.
    Numbers(Vec<i64>),
    /// The key holds another policy than the request's: a word, a generation, parameters.
    PolicyMismatch(String, i64, Vec<u8>),
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
                Ok(Self::PolicyMismatch(
                    String::from_utf8_lossy(&word).into_owned(),
                    generation,
                    parameters,
                ))
            }
            other => Err(Failure::strange(&other)),
        }
    }
}
