//! From which client a request comes: what clients write into headers to seem to be others, and what proxies add.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use http::Request;
use proptest::prelude::*;
use tollgate::tower::ClientIp;

const PROXY: &str = "10.0.0.1:7000";
const REAL: &str = "203.0.113.7";

fn peer() -> ClientIp {
    ClientIp::peer::<ConnectInfo<SocketAddr>>()
}

fn behind(header: &str) -> ClientIp {
    let proxies = ["10.0.0.0/8", "192.0.2.1/32", "2001:db8:aa::/48"];
    peer().trusted_proxies(header, proxies.map(|network| network.parse().expect("a network")))
}

/// The address that counts for a request from `peer` with these header lines.
fn ip(client: &ClientIp, peer: &str, lines: &[(&str, &[u8])]) -> String {
    let mut request = Request::new(());
    let peer = ConnectInfo::<SocketAddr>(peer.parse().expect("an address"));
    request.extensions_mut().insert(peer);
    for &(name, value) in lines {
        let name = http::HeaderName::from_bytes(name.as_bytes()).expect("a name");
        request.headers_mut().append(name, value.try_into().expect("a value"));
    }
    client.of(&request.into_parts().0).expect("a peer").to_string()
}

/// The same of a request from the proxy, with one header in several lines.
fn through(header: &str, lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| (header, line.as_bytes())).collect();
    ip(&behind(header), PROXY, &lines)
}

fn x_forwarded_for(lines: &[&str]) -> String {
    through("x-forwarded-for", lines)
}

#[test]
fn without_proxies_the_peer_counts_whatever_headers_say() {
    let lines: [(&str, &[u8]); 3] =
        [("x-forwarded-for", b"192.0.2.9"), ("forwarded", b"for=192.0.2.9"), ("x-real-ip", b"::1")];
    assert_eq!(ip(&peer(), "203.0.113.7:5", &lines), REAL);
    assert_eq!(ip(&peer(), PROXY, &lines), "10.0.0.1");
    assert_eq!(peer().of(&Request::new(()).into_parts().0), None);
}

#[test]
fn a_header_of_a_peer_that_is_no_proxy_is_not_read() {
    let header = "x-forwarded-for";
    for text in [&b"192.0.2.9"[..], b"10.0.0.2"] {
        assert_eq!(ip(&behind(header), "203.0.113.7:5", &[(header, text)]), REAL);
    }
}

#[test]
fn the_last_address_that_is_not_trusted_counts() {
    assert_eq!(x_forwarded_for(&[REAL]), REAL);
    assert_eq!(x_forwarded_for(&["192.0.2.9, 10.9.9.9, 203.0.113.7"]), REAL);
    assert_eq!(x_forwarded_for(&["192.0.2.9,203.0.113.7 ,\t10.2.3.4, 192.0.2.1"]), REAL);
    // A program of the own network called through the proxies.
    assert_eq!(x_forwarded_for(&["10.7.7.7, 10.2.3.4"]), "10.7.7.7");
    assert_eq!(x_forwarded_for(&[]), "10.0.0.1");
}

#[test]
fn several_lines_are_one_list() {
    assert_eq!(x_forwarded_for(&["192.0.2.9", "203.0.113.7, 10.2.3.4", "10.2.3.5"]), REAL);
    assert_eq!(x_forwarded_for(&["203.0.113.7", "10.2.3.4"]), REAL);
}

#[test]
fn only_the_header_that_the_program_names_is_read() {
    let both: [(&str, &[u8]); 4] = [
        ("forwarded", b"for=192.0.2.9"),
        ("x-forwarded-for", b"203.0.113.7"),
        ("x-real-ip", b"192.0.2.8"),
        ("x-forwarded", b"for=192.0.2.7"),
    ];
    assert_eq!(ip(&behind("X-Forwarded-For"), PROXY, &both), REAL);
    assert_eq!(ip(&behind("x-real-ip"), PROXY, &both), "192.0.2.8");
    // The proxies write another one: all clients share the limit of the proxy.
    assert_eq!(ip(&behind("cf-connecting-ip"), PROXY, &both), "10.0.0.1");
}

#[test]
fn what_is_no_address_ends_the_search_at_the_proxy_that_wrote_it() {
    let garbage = [
        "unknown",
        "_hidden",
        "",
        " ",
        ",",
        "localhost",
        "203.0.113",
        "203.0.113.7.1",
        "0203.0.113.7",
        "0xcb.0.113.7",
        "3405803783",
        "203.0.113.7:http",
        "203.0.113.7:99999",
        "[203.0.113.7]",
        "[::1",
        "[2001:db8::abcd",
        "\"\"203.0.113.7\"\"",
        "::1]",
        "[]",
        "fe80::1%eth0",
        "203.0.113.7/32",
        "203.0.113.7 203.0.113.8",
        "for=203.0.113.7",
        "\"203.0.113.7",
        "203.0.113.7\"",
        "unix:",
        "-",
        "\"203.0.113.7\"",
        "203.0.113.7:_hidden",
    ];
    for entry in garbage {
        // Before it stands what the client wrote.
        let list = format!("192.0.2.9, {entry}");
        assert_eq!(x_forwarded_for(&[&list]), "10.0.0.1", "{entry}");
        assert_eq!(x_forwarded_for(&["192.0.2.9", entry]), "10.0.0.1", "{entry}");
        assert_eq!(x_forwarded_for(&[&format!("{list}, 10.2.3.4")]), "10.2.3.4", "{entry}");
    }
    // Not text at all.
    let bytes = [("x-forwarded-for", &b"192.0.2.9, \xff\xfe"[..])];
    assert_eq!(ip(&behind("x-forwarded-for"), PROXY, &bytes), "10.0.0.1");
}

#[test]
fn ports_and_brackets_are_not_part_of_the_address() {
    assert_eq!(x_forwarded_for(&["203.0.113.7:80"]), REAL);
    for entry in ["2001:db8::7", "[2001:db8::7]", "[2001:db8::7]:80", "[2001:DB8:0:0::7]:1"] {
        assert_eq!(x_forwarded_for(&[entry]), "2001:db8::", "{entry}");
    }
}

#[test]
#[should_panic(expected = "let the proxies write x-forwarded-for")]
fn the_header_of_rfc_7239_is_not_read() {
    let _ = behind("Forwarded");
}

#[test]
#[should_panic(expected = "a name of a header")]
fn a_header_has_a_name() {
    let _ = behind("x forwarded");
}

#[test]
fn mapped_addresses_are_ipv4() {
    assert_eq!(ip(&peer(), "[::ffff:203.0.113.7]:5", &[]), REAL);
    assert_eq!(x_forwarded_for(&["192.0.2.9, ::ffff:203.0.113.7, ::ffff:10.2.3.4"]), REAL);
    let client = behind("x-forwarded-for");
    assert_eq!(ip(&client, "[::ffff:10.0.0.1]:5", &[("x-forwarded-for", b"203.0.113.7")]), REAL);
}

#[test]
fn ipv6_counts_by_its_network() {
    let same = |client: &ClientIp, one: &str, other: &str| {
        let ip = |host: &str| ip(client, &format!("[{host}]:80"), &[]);
        ip(one) == ip(other)
    };
    let addresses = ["2001:db8:1:2::1", "2001:db8:1:2:ffff::", "2001:db8:1:3::1"];
    assert!(
        same(&peer(), addresses[0], addresses[1]) && !same(&peer(), addresses[0], addresses[2])
    );
    // A network of proxies is compared before that.
    let client = behind("x-forwarded-for");
    assert_eq!(ip(&client, "[2001:db8:aa:1::1]:5", &[("x-forwarded-for", b"203.0.113.7")]), REAL);
    assert_eq!(
        ip(&client, "[2001:db8:ab::1]:5", &[("x-forwarded-for", b"203.0.113.7")]),
        "2001:db8:ab::"
    );
}

#[test]
fn very_long_headers_change_nothing() {
    let spoofed = "10.0.0.9, ".repeat(5000);
    assert_eq!(x_forwarded_for(&[&format!("{spoofed}203.0.113.7")]), REAL);
    assert_eq!(x_forwarded_for(&[&spoofed, REAL]), REAL);
    assert_eq!(x_forwarded_for(&["1".repeat(60_000).as_str(), REAL]), REAL);
    // A proxy that passes nonsense on.
    assert_eq!(x_forwarded_for(&[&format!("192.0.2.9, {}", "\"".repeat(59_999))]), "10.0.0.1");
}

#[test]
fn without_trusted_networks_no_header_is_read() {
    let nobody = peer().trusted_proxies("x-forwarded-for", []);
    assert_eq!(ip(&nobody, "203.0.113.7:5", &[("x-forwarded-for", b"192.0.2.9")]), REAL);
}

/// What a client may send: pieces of addresses and of the grammar, in any order.
fn anything() -> impl Strategy<Value = Vec<String>> {
    let pieces = prop::sample::select(vec![
        ",",
        ";",
        "\"",
        "\\",
        "=",
        "for",
        "for=",
        "For=\"",
        "[",
        "]",
        ":",
        " ",
        "\t",
        "::1",
        "10.0.0.2",
        "192.0.2.9",
        "192.0.2.1",
        "unknown",
        "_x",
        "::ffff:10.0.0.3",
        "2001:db8:aa::1",
        ":80",
        "by=",
        "a",
        "%",
        "\u{e9}",
    ]);
    let line = prop::collection::vec(pieces, 0..20).prop_map(|pieces| pieces.concat());
    prop::collection::vec(line, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..Default::default() })]

    /// The law behind all of it: whatever a client sends, it counts as the address that the first proxy saw. Proxies append to
    /// the last line or add one.
    #[test]
    fn a_client_cannot_change_its_address(
        sent in anything(),
        client in any::<u32>(),
        more in prop::collection::vec(any::<(bool, u8)>(), 0..4),
        adds_line: bool,
    ) {
        let client = IpAddr::V4(client.into());
        let trusted = |ip: IpAddr| ip.to_string().starts_with("10.") || ip.to_string() == "192.0.2.1";
        prop_assume!(!trusted(client));
        let mut lines = sent;
        let append = |lines: &mut Vec<String>, adds_line: bool, ip: &str| match lines.last_mut() {
            Some(last) if !adds_line => *last = format!("{last}, {ip}"),
            _ => lines.push(ip.to_owned()),
        };
        append(&mut lines, adds_line, &client.to_string());
        for (adds_line, proxy) in more {
            append(&mut lines, adds_line, &format!("10.0.1.{proxy}"));
        }
        let header = "x-forwarded-for";
        let lines: Vec<_> = lines.iter().map(|line| (header, line.trim().as_bytes())).collect();
        prop_assert_eq!(ip(&behind(header), PROXY, &lines), client.to_string());
    }
}
