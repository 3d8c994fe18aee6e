//! Why a request has no reply, and whether it may have been carried out.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::store::StoreError;

impl StoreError {
    pub(crate) fn strange(answer: &impl std::fmt::Debug) -> Self {
        Self::lost(format!("the script answered {answer:?}"))
    }

    pub(crate) fn late(deadline: Duration) -> Self {
        Self::lost(format!("no answer within {deadline:?}"))
    }
}

impl From<RedisError> for StoreError {
    /// A script writes once, as the last step that can fail: after an error that the server is known to send, and
    /// without a connection, nothing was written. Another error reply may come from a proxy that has lost the
    /// server's reply; an error of another kind may be one with which redis-rs ends requests in flight when it
    /// refreshes the topology of a cluster.
    fn from(error: RedisError) -> Self {
        let refused = is_refusal(&error)
            || error.is_connection_refusal()
            || error.kind() == ErrorKind::ClusterConnectionNotFound;
        let said = said_in_script(&error);
        // A script that fails on the content of the key is not the server's fault either.
        let stumbled = said.or(error.detail()).is_some_and(|text| text.starts_with("user_script"));
        let is_of_key = error.code() == Some("WRONGTYPE")
            || said.is_some_and(|text| text.starts_with("WRONGTYPE "))
            || stumbled;
        let failure = if refused { Self::refused(error) } else { Self::lost(error) };
        Self { is_of_key, ..failure }
    }
}

/// Whether Redis 6 to 8 and Valkey send this error only before they execute a request, or for a script that has not
/// written.
fn is_refusal(error: &RedisError) -> bool {
    match error.code() {
        Some("ERR") => error.detail().is_some_and(|text| {
            let is_start = |start: &&str| text.starts_with(*start);
            // The error of a script that failed names the line.
            REFUSALS_OF_NO_CODE.iter().any(is_start) || text.contains("user_script:")
        }),
        Some(
            "ASK" | "BUSY" | "CLUSTERDOWN" | "CROSSSLOT" | "DENIED" | "LOADING" | "MASTERDOWN"
            | "MISCONF" | "MOVED" | "NOAUTH" | "NOPERM" | "NOPROTO" | "NOREPLICAS" | "NOSCRIPT"
            | "OOM" | "READONLY" | "REDIRECT" | "TRYAGAIN" | "WRONGPASS" | "WRONGTYPE",
        ) => true,
        _ => false,
    }
}

/// How refusals begin whose code is only `ERR`.
const REFUSALS_OF_NO_CODE: [&str; 6] = [
    "Error compiling script",
    "Error running script",
    "Script killed by user",
    "The user executing the script",
    "max number of clients reached",
    "unknown command",
];

/// The error within a script, with its code, if the server is a Redis before 7. Such a server only reports that
/// a script failed, `ERR Error running script (call to f_5f…): @user_script:4: WRONGTYPE Operation …`, with
/// `@user_script: 4: -READONLY You can't …` at the end where it refuses a command and not the command itself.
fn said_in_script(error: &RedisError) -> Option<&str> {
    let failed = error.detail()?.strip_prefix("Error running script (call to f_")?;
    let (_, placed) = failed.split_once("): @user_script:")?;
    let (_, said) = placed.split_once(": ")?;
    let refused = said.strip_prefix("@user_script: ").and_then(|placed| placed.split_once(": -"));
    Some(refused.map_or(said, |(_, refused)| refused))
}

/// Whether the connection is of no use after this error: it is broken or out of step, or leads to a replica.
pub(crate) fn ends_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_io_error()
        || error.kind() == ErrorKind::UnexpectedReturnType
        || is_demoted(error)
}

/// Whether the server has become a replica: a new connection may lead to the primary.
fn is_demoted(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || said_in_script(error).is_some_and(|text| text.starts_with("READONLY "))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::ConnectionRefused;

    use super::*;

    fn is_lost(error: impl Into<RedisError>) -> bool {
        StoreError::from(error.into()).may_have_charged()
    }

    #[test]
    fn only_what_is_certain_is_sent_again() {
        for kind in [ServerErrorKind::Ask, ServerErrorKind::NoPerm, ServerErrorKind::ReadOnly] {
            assert!(!is_lost((ErrorKind::Server(kind), "")), "{kind:?}");
        }
        let unknown_to_redis_rs = redis::make_extension_error("OOM".to_owned(), None);
        assert!(!is_lost(unknown_to_redis_rs));
        for said in [
            "NOSCRIPT No matching script.",
            "MISCONF Errors writing to the AOF file: No space left on device",
            "NOREPLICAS Not enough good replicas to write.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "DENIED Redis is running in protected mode",
            "ERR unknown command 'EVALSHA', with args beginning with: 'aa' '1' 'key' ",
            "ERR max number of clients reached",
            "ERR The user executing the script can't run this command or subcommand",
            "ERR Error running script (call to f_5f): @user_script: 1: Script killed by user",
        ] {
            assert!(!is_lost(failed(said)), "{said}");
        }
        for said in ["ERR timed out", "TIMEOUT", "upstream failure", "UNKNOWN code", "ERR"] {
            assert!(is_lost(failed(said)), "{said}");
        }
        assert!(!is_lost(std::io::Error::from(ConnectionRefused)));
        assert!(!is_lost((ErrorKind::ClusterConnectionNotFound, "")));
        for kind in [
            ErrorKind::AuthenticationFailed,
            ErrorKind::Client,
            ErrorKind::InvalidClientConfig,
            ErrorKind::Io,
            ErrorKind::Parse,
        ] {
            assert!(is_lost((kind, "")), "{kind:?}");
        }
    }

    #[test]
    fn a_connection_is_kept_only_where_the_next_request_may_use_it() {
        let io = |kind: std::io::ErrorKind| RedisError::from(std::io::Error::from(kind));
        let of_kind = |kind| RedisError::from((kind, ""));
        for error in [
            io(std::io::ErrorKind::BrokenPipe),
            // redis-rs would try again on the same connection.
            io(std::io::ErrorKind::TimedOut),
            of_kind(ErrorKind::Parse),
            of_kind(ErrorKind::AuthenticationFailed),
            of_kind(ErrorKind::UnexpectedReturnType),
            failed("READONLY You can't write against a read only replica."),
        ] {
            assert!(ends_connection(&error), "{error}");
        }
        for said in ["OOM command not allowed", "BUSY Redis is busy", "ERR timed out", "LOADING"] {
            assert!(!ends_connection(&failed(said)), "{said}");
        }
        assert!(!ends_connection(&of_kind(ErrorKind::Client)));
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
                let failure = StoreError::from(error);
                let is = (failure.may_have_charged(), !failure.is_unavailable());
                assert_eq!(is, (false, of_key), "{said}");
            }
        }
    }
}
