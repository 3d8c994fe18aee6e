//! Header lines that a client sends in order to seem another one.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderName, HeaderValue, Request};
use tollgate::tower::ClientIp;

/// The networks of the proxies.
const PROXIES: [&str; 3] = ["10.0.0.0/8", "192.0.2.1/32", "2001:db8:aa::/48"];

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));

/// Each line of the input is one of the header.
pub(crate) fn judge(input: &[u8]) {
    let sent: Vec<_> = input.split(|&byte| byte == b'\n').take(16).collect();
    for adds_line in [false, true] {
        client_counts(&sent, CLIENT, &[(adds_line, 0)]);
        client_counts(&sent, CLIENT, &[(false, 0), (adds_line, 1), (!adds_line, 2)]);
    }
}

/// Whatever a client sends, it counts as the address that the first proxy saw. Each proxy appends the address from which
/// it was called to the last line, or adds one: the client, then the proxies `10.0.1.x`.
fn client_counts(sent: &[&[u8]], client: IpAddr, proxies: &[(bool, u8)]) {
    let header = "x-forwarded-for";
    let entry = |ip: IpAddr| ip.to_string().into_bytes();
    let mut lines: Vec<Vec<u8>> = sent.iter().map(|line| line.trim_ascii().to_vec()).collect();
    lines.retain(|line| HeaderValue::from_bytes(line).is_ok());
    let mut caller = client;
    for &(adds_line, proxy) in proxies {
        match lines.last_mut() {
            Some(last) if !adds_line => last.extend([b", ", &entry(caller)[..]].concat()),
            _ => lines.push(entry(caller)),
        }
        caller = Ipv4Addr::new(10, 0, 1, proxy).into();
    }
    let of_client = ClientIp::peer_by(move |_| Some(caller));
    let of_client =
        of_client.trusted_proxies(header, PROXIES.map(|network| network.parse().expect("valid")));
    let mut request = Request::new(());
    for line in &lines {
        let name = HeaderName::from_bytes(header.as_bytes()).expect("a name");
        request.headers_mut().append(name, HeaderValue::from_bytes(line).expect("a value"));
    }
    let lines: Vec<_> = lines.iter().map(|line| String::from_utf8_lossy(line)).collect();
    assert_eq!(of_client.of(&request.into_parts().0), Some(client), "{lines:?}");
}
