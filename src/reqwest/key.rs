//! The API key of a request.
//!
//! Some schemes of `Authorization` sign each request, so their value differs from call to call: that is no key, as a
//! limit for each request would limit nothing. Such requests share the limit of their host.

use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The fields in which APIs take a key.
const KEY_FIELDS: [&str; 4] = ["x-api-key", "api-key", "x-goog-api-key", "private-token"];

/// Schemes whose value is a secret as a whole, whatever it looks like.
const WHOLE: [&str; 2] = ["basic", "bearer"];

/// Schemes whose value is new for each request or connection.
const NEW_EACH_TIME: [&str; 4] = ["negotiate", "ntlm", "kerberos", "privatetoken"];

/// The key with which a request is made: the value of `Authorization`, or another usual field.
pub(super) fn of(headers: &HeaderMap) -> Option<&[u8]> {
    let authorization = headers.get(AUTHORIZATION);
    let by_scheme = authorization.and_then(|value| of_authorization(value.as_bytes().trim_ascii()));
    by_scheme.or_else(|| {
        KEY_FIELDS.into_iter().find_map(|name| headers.get(name)).map(|value| value.as_bytes())
    })
}

fn of_authorization(value: &[u8]) -> Option<&[u8]> {
    let Some(end) = value.iter().position(|&byte| byte == b' ') else { return Some(value) };
    let (scheme, value) = (&value[..end], value[end..].trim_ascii_start());
    let is_one_of =
        |names: &[&str]| names.iter().any(|name| scheme.eq_ignore_ascii_case(name.as_bytes()));
    let is_key = is_one_of(&WHOLE) || !is_one_of(&NEW_EACH_TIME) && is_token(value);
    is_key.then_some(value)
}

/// Whether it is one secret: the `token68` of RFC 9110, and not a list of parameters.
fn is_token(value: &[u8]) -> bool {
    let text = value.trim_ascii_end();
    let end = text.iter().rposition(|&byte| byte != b'=').map_or(0, |last| last + 1);
    text[..end].iter().all(|&byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte))
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_one_secret_and_no_signature() {
        for (value, key) in [
            ("sk-one", Some("sk-one")),
            ("Bearer sk-one", Some("sk-one")),
            ("Key c2stb25l==", Some("c2stb25l==")),
            ("bearer  a=b,c", Some("a=b,c")),
            ("Basic dXNlcjpwYXNz==", Some("dXNlcjpwYXNz==")),
            ("token sk-one", Some("sk-one")),
            ("Klaviyo-API-Key pk_1~2", Some("pk_1~2")),
            ("AWS4-HMAC-SHA256 Credential=AKID/20260101/s3, Signature=fe5f80", None),
            ("AWS AKID:frJIUN8DYpKDtOLCwo=", None),
            ("Digest username=\"Mufasa\", nonce=\"n\", response=\"66\"", None),
            ("Negotiate YIIJvwYGKwYBBQUCoIIJszCC", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().expect("a value"));
            assert_eq!(of(&headers), key.map(str::as_bytes), "{value}");
            // Another field counts where `Authorization` has no key.
            headers.insert("x-api-key", "other".parse().expect("a value"));
            assert_eq!(of(&headers), Some(key.unwrap_or("other").as_bytes()), "{value}");
        }
        assert_eq!(of(&HeaderMap::new()), None);
    }
}
