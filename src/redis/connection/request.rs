//! Requests to the server, and its replies.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{Cmd, Value};

use crate::error::store::StoreError;

/// Where the number of a request is in its first argument.
const NUMBER: Range<usize> = 0..8;

/// A number that differs from process to process.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// The script of all limiters.
const SCRIPT: &str = include_str!("../script/limit.lua");

/// The digest by which the server knows it.
static DIGEST: LazyLock<String> =
    LazyLock::new(|| redis::Script::new(SCRIPT).get_hash().to_owned());

/// The number of a request, which its reply repeats. Redis replies in order, and a client takes each reply for the
/// reply to its oldest request: if one is lost on its way and the connection goes on, all later replies come for
/// the wrong requests.
///
/// It differs from the numbers of the last four billion requests of this process. Where it begins is random, as a proxy
/// may send the requests of several processes over one connection.
#[allow(clippy::cast_possible_truncation)] // the lower half
pub(crate) fn next_number() -> u32 {
    static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(random() as u32));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// One run of a script.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// Its only key.
    pub key: Arc<str>,
    /// Its only argument.
    pub argument: Vec<u8>,
    /// The maximum time until the reply.
    pub deadline: Duration,
    /// Whether there was no reply for a while: to any request of its limiter, and to one of its key.
    pub(crate) idle: [bool; 2],
    number: [u8; 8],
}

impl Request {
    /// `argument` has room for the number in front.
    pub(crate) fn new(key: Arc<str>, mut argument: Vec<u8>, deadline: Duration) -> Self {
        let number = f64::from(next_number()).to_le_bytes();
        argument[NUMBER].copy_from_slice(&number);
        Self { key, argument, deadline, idle: [false; 2], number }
    }

    /// `EVALSHA`, or `EVAL` with the whole text.
    #[must_use]
    pub fn command(&self, whole: bool) -> Cmd {
        let (name, script) = if whole { ("EVAL", SCRIPT) } else { ("EVALSHA", &**DIGEST) };
        let mut command = redis::cmd(name);
        command.arg(script).arg(1).arg(&*self.key).arg(&*self.argument);
        command
    }

    /// Reads the server's reply to this request.
    ///
    /// # Errors
    ///
    /// If it is the reply to another request, or none of this crate's scripts. Then a reply was lost on its way,
    /// and this connection gives each later reply to the wrong request: close it. Nothing is granted by such a
    /// reply; its own request counts as lost.
    pub fn reply(&self, value: Value) -> Result<Vec<f64>, StoreError> {
        let Value::BulkString(bytes) = &value else { return Err(StoreError::strange(&value)) };
        match bytes.as_chunks::<8>() {
            ([number, reply @ ..], []) if *number == self.number => {
                Ok(reply.iter().map(|number| f64::from_le_bytes(*number)).collect())
            }
            ([_, ..], []) => {
                Err(StoreError::lost("the reply to another request: one was lost on its way"))
            }
            _ => Err(StoreError::strange(&value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Value {
        Value::BulkString(bytes.into())
    }

    fn request() -> Request {
        Request::new("key".into(), vec![9; 24], Duration::from_secs(1))
    }

    #[test]
    fn a_reply_is_read_as_the_script_writes_it() {
        let request = request();
        let numbers = [4_503_599_627_370_497.0f64, -1.0].map(f64::to_le_bytes);
        let bytes = [&request.number[..], numbers.as_flattened()].concat();
        let reply = request.reply(text(&bytes)).expect("a reply");
        assert_eq!(reply, [4_503_599_627_370_497.0, -1.0]);
        let others = [Value::Nil, Value::Okay, Value::Int(7), text(b""), text(&bytes[..11])];
        for value in others.into_iter().chain([Value::Array(vec![text(&bytes)])]) {
            let failure = request.reply(value.clone()).expect_err("a failure");
            // Its permits may have been charged.
            assert_eq!(
                (failure.may_have_charged(), failure.is_unavailable()),
                (true, true),
                "{value:?}"
            );
        }
    }

    #[test]
    fn a_reply_to_another_request_is_told_apart() {
        let (one, other) = (request(), request());
        assert_eq!(one.argument[NUMBER], one.number);
        assert_eq!(one.argument[NUMBER.end..], [9; 16]);
        assert_eq!(one.reply(text(&one.number)).expect("its own"), vec![]);
        let failure = one.reply(text(&other.number)).expect_err("another's");
        assert_eq!((failure.may_have_charged(), failure.is_unavailable()), (true, true));
    }
}
