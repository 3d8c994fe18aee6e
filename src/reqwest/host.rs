//! The name of a host, one for all spellings.

use ::reqwest::Url;

/// The host and port of a URL: `example.org`, `example.org:8080`, `[::1]:3000`. [`Url`] has made it lower case, an
/// address its shortest form, and an international name ASCII. A dot at the end and the ports of HTTP and HTTPS
/// are left out.
pub(super) fn of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let host = host.strip_suffix('.').unwrap_or(host);
    match url.port() {
        None | Some(80 | 443) => host.to_owned(),
        Some(port) => format!("{host}:{port}"),
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_host_has_one_name() {
        for (url, name) in [
            ("https://api.example.org/a?b", "api.example.org"),
            ("http://API.Example.ORG:80/", "api.example.org"),
            ("https://user:secret@api.example.org.:443/", "api.example.org"),
            ("https://api.example.org:8443/", "api.example.org:8443"),
            ("https://bücher.example/", "xn--bcher-kva.example"),
            ("http://127.0.0.1:3000/", "127.0.0.1:3000"),
            ("http://0x7f.1/", "127.0.0.1"),
            ("http://[0:0:0:0:0:0:0:1]:3000/", "[::1]:3000"),
        ] {
            assert_eq!(of(&Url::parse(url).expect("a URL")), name, "{url}");
        }
    }
}
