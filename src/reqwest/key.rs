//! The API key of a request.
//!
//! Some schemes of `Authorization` sign each request: the value differs from call to call, and only a part of it
//! says who calls. That part is the key. A value that has none is no key, so that its requests share a limit; a
//! key that differs with each request would limit nothing.

use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The fields in which APIs take a key.
const KEY_FIELDS: [&str; 4] = ["x-api-key", "api-key", "x-goog-api-key", "private-token"];

/// Schemes whose value is a secret as a whole, whatever it looks like.
const WHOLE: [&str; 2] = ["basic", "bearer"];

/// Schemes whose value is new for each request or connection, and only its server can tell who calls.
const NEW_EACH_TIME: [&str; 4] = ["negotiate", "ntlm", "kerberos", "privatetoken"];

/// The parameters that say who calls, in the order in which they count. AWS' Signature 4 and those made after it
/// have a `Credential`, OAuth 1 a token or the key of a program, HTTP signatures a `keyId`, Digest a `username`,
/// Hawk an `id`, Akamai's `EdgeGrid` a `client_token`, Web Push a `k`.
const IDENTITIES: [&str; 14] = [
    "credential",
    "oauth_token",
    "oauth_consumer_key",
    "keyid",
    "username",
    "client_token",
    "client_id",
    "access_key",
    "id",
    "token",
    "api_key",
    "apikey",
    "key",
    "k",
];

/// The key with which a request is made: who calls by `Authorization`, or another usual field.
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
    if is_one_of(&NEW_EACH_TIME) {
        None
    } else if is_one_of(&WHOLE) || is_token(value) {
        Some(value)
    } else if let Some(colon) = value.iter().position(|&byte| byte == b':')
        && !value[..colon].contains(&b'=')
    {
        // `AWS id:signature`, `SharedKey account:signature`.
        Some(&value[..colon])
    } else if !value.contains(&b'=') {
        Some(value)
    } else {
        let found = |name: &'static str| {
            let is_it = |(other, value): &(&[u8], &[u8])| {
                other.eq_ignore_ascii_case(name.as_bytes()) && !value.is_empty()
            };
            Parameters(value).find(is_it).map(|(_, value)| (name, value))
        };
        let (name, value) = IDENTITIES.into_iter().find_map(found)?;
        // `AKID/20260101/eu-west-1/s3/aws4_request`: what follows the key changes each day.
        let end = value.iter().position(|&byte| name == "credential" && byte == b'/');
        Some(&value[..end.unwrap_or(value.len())])
    }
}

/// RFC 9110's `token68`: text with `=` at its end only.
fn is_token(value: &[u8]) -> bool {
    let text = value.trim_ascii_end();
    let end = text.iter().rposition(|&byte| byte != b'=').map_or(0, |last| last + 1);
    text[..end].iter().all(|&byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte))
}

/// `name=value` or `name="value"`, separated by what the schemes separate them with.
struct Parameters<'a>(&'a [u8]);

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let is_end = |byte: &u8| b",;& \t".contains(byte);
        loop {
            let start = self.0.iter().position(|byte| !is_end(byte))?;
            let text = &self.0[start..];
            let name =
                text.iter().position(|byte| is_end(byte) || *byte == b'=').unwrap_or(text.len());
            let Some(b'=') = text.get(name) else {
                self.0 = &text[name..];
                continue;
            };
            let value = &text[name + 1..];
            let (value, rest) = match value.strip_prefix(b"\"") {
                Some(quoted) => {
                    let end = quoted.iter().position(|&byte| byte == b'"').unwrap_or(quoted.len());
                    (&quoted[..end], quoted.get(end + 1..).unwrap_or_default())
                }
                None => value.split_at(value.iter().position(is_end).unwrap_or(value.len())),
            };
            self.0 = rest;
            return Some((&text[..name], value));
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_the_part_that_says_who_calls() {
        for (value, key) in [
            ("sk-one", Some("sk-one")),
            ("Bearer sk-one", Some("sk-one")),
            ("Key c2stb25l==", Some("c2stb25l==")),
            ("Key ab:", Some("ab")),
            ("Key ab:c", Some("ab")),
            ("bearer  a=b,c", Some("a=b,c")),
            ("Basic dXNlcjpwYXNz==", Some("dXNlcjpwYXNz==")),
            ("token sk-one", Some("sk-one")),
            ("Klaviyo-API-Key pk_1~2", Some("pk_1~2")),
            (
                "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu-west-1/s3/aws4_request, \
                 SignedHeaders=host;range;x-amz-date, Signature=fe5f80",
                Some("AKID"),
            ),
            (
                "GOOG4-RSA-SHA256 Credential=a@b.iam/20260101/auto/storage/goog4_request,Signature=1",
                Some("a@b.iam"),
            ),
            ("HMAC-SHA256 Credential=id-1&SignedHeaders=date;host&Signature=aa==", Some("id-1")),
            (
                "OAuth realm=\"a, b=c\", oauth_consumer_key=\"app\", oauth_token=\"user\", oauth_nonce=\"n1\", \
                 oauth_signature=\"x%3D\"",
                Some("user"),
            ),
            ("OAuth oauth_consumer_key=\"app\",oauth_token=\"\",oauth_nonce=\"n1\"", Some("app")),
            (
                "Digest username=\"Mufasa\", realm=\"r\", nonce=\"n\", response=\"66\"",
                Some("Mufasa"),
            ),
            ("Signature keyId=\"rsa-1\",algorithm=\"rsa\",signature=\"a+b=\"", Some("rsa-1")),
            ("Hawk id=\"dh37\", ts=\"1353832234\", nonce=\"j4h3\", mac=\"6R4=\"", Some("dh37")),
            (
                "EG1-HMAC-SHA256 client_token=c1;access_token=a1;timestamp=t;nonce=n;signature=s=",
                Some("c1"),
            ),
            ("vapid t=eyJ0.a.b, k=BA1H", Some("BA1H")),
            ("AWS AKID:frJIUN8DYpKDtOLCwo=", Some("AKID")),
            ("SharedKey account:ctzMq410TV3wS7=", Some("account")),
            ("Scheme of words", Some("of words")),
            // Only the server can tell who calls.
            ("Negotiate YIIJvwYGKwYBBQUCoIIJszCC", None),
            ("SCRAM-SHA-256 data=biwsbj11c2VyLHI9ck9w, sid=1", None),
            ("Own nonce=1, signature=2", None),
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
