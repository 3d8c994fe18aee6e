//! From which client a request comes.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;

use http::header::{FORWARDED, HeaderName};
use http::request::Parts;
use ipnet::{IpNet, Ipv6Net};

/// The IP address of a client, as a key for [`RefuseLayer::by_ip`](super::RefuseLayer::by_ip).
///
/// It is the address from which the connection comes, or, [behind proxies](Self::trusted_proxies), the last address
/// that no trusted proxy has. A header counts only if a trusted proxy sent the request.
///
/// **An IPv6 address counts as its /64 network**, because one subscriber has at least that
/// many addresses: `2001:db8:0:7::`. An IPv4 address that is mapped to IPv6 (`::ffff:192.0.2.1`) is the IPv4 address.
///
/// ```
/// use std::net::SocketAddr;
/// use axum::extract::ConnectInfo;
/// use http::Request;
/// use tollgate::tower::ClientIp;
///
/// let client = ClientIp::peer::<ConnectInfo<SocketAddr>>()
///     .trusted_proxies("x-forwarded-for", ["10.0.0.0/8".parse()?]);
/// let ip_of = |peer: &str, header: &str| {
///     let request = Request::get("/").header("x-forwarded-for", header);
///     let peer = ConnectInfo::<SocketAddr>(peer.parse().unwrap());
///     client.of(&request.extension(peer).body(()).unwrap().into_parts().0).unwrap().to_string()
/// };
/// assert_eq!(ip_of("10.0.0.1:80", "192.0.2.9, 203.0.113.7, 10.0.0.2"), "203.0.113.7");
/// assert_eq!(ip_of("203.0.113.8:80", "192.0.2.9"), "203.0.113.8"); // not sent by a proxy
/// assert_eq!(ip_of("10.0.0.1:80", "2001:db8:0:7::42"), "2001:db8:0:7::");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClientIp {
    peer: PeerOf,
    /// The header to which proxies append, and the networks of those that are believed.
    header: Option<HeaderName>,
    trusted: Vec<IpNet>,
}

type PeerOf = Arc<dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync>;

impl ClientIp {
    /// The address in an extension of the request that the server sets for each connection: for axum
    /// `ConnectInfo<SocketAddr>`, which takes `app.into_make_service_with_connect_info::<SocketAddr>()`.
    #[must_use]
    pub fn peer<E: Deref<Target = SocketAddr> + Send + Sync + 'static>() -> Self {
        Self::peer_by(|request| Some(request.extensions.get::<E>()?.ip()))
    }

    /// The address that `peer` finds: for servers with another extension, such as tonic's `TcpConnectInfo`, or the one of a
    /// proxy on a Unix socket, which has none: `|_| Some(Ipv4Addr::LOCALHOST.into())`. Do not read a header here that clients
    /// can send.
    #[must_use]
    pub fn peer_by(peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self { peer: Arc::new(peer), header: None, trusted: Vec::new() }
    }

    /// Believes the proxies in these networks when they say in `header` from where they were called. One address is a
    /// network too: `"192.0.2.1/32".parse()?`.
    ///
    /// **Name the header to which your proxies append, or which they replace**, such as `x-forwarded-for` or
    /// `cf-connecting-ip`; one that they pass on as it came is the client's own text. No other header is read. It is a list of
    /// addresses, each with or without a port; several lines are one list. In a network of all addresses each client is believed.
    ///
    /// The list is read from its end, as long as the addresses are trusted. Another entry (`unknown`, `_hidden`, an empty one)
    /// ends it: the client is then the proxy that wrote the entry. Without the header it is the proxy itself.
    ///
    /// # Panics
    ///
    /// If `header` is no name of a header, or is `forwarded`.
    #[must_use]
    pub fn trusted_proxies(self, header: &str, trusted: impl IntoIterator<Item = IpNet>) -> Self {
        let header = HeaderName::from_bytes(header.as_bytes()).expect("a name of a header");
        assert!(header != FORWARDED, "it is not read: let the proxies write x-forwarded-for");
        Self { header: Some(header), trusted: trusted.into_iter().collect(), ..self }
    }

    /// The address of the client. `None` if the server did not say from where the request comes.
    #[must_use]
    pub fn of(&self, request: &Parts) -> Option<IpAddr> {
        let mut client = (self.peer)(request)?.to_canonical();
        let lines =
            self.header.iter().flat_map(|header| request.headers.get_all(header).iter().rev());
        // What stands before the entry of the first trusted proxy is the client's own text.
        for entry in lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b',')) {
            let is_trusted = self.trusted.iter().any(|network| network.contains(&client));
            match str::from_utf8(entry).ok().and_then(|text| address(text.trim())) {
                Some(address) if is_trusted => client = address,
                _ => break,
            }
        }
        Some(match client {
            IpAddr::V6(address) => Ipv6Net::new_assert(address, 64).network().into(),
            IpAddr::V4(_) => client,
        })
    }
}

/// An address with or without a port; of IPv6 with or without brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = match bracketed {
        Some(text) => text.parse::<Ipv6Addr>().map(IpAddr::V6).ok(),
        None => {
            text.parse().or_else(|_| text.parse().map(|with_port: SocketAddr| with_port.ip())).ok()
        }
    };
    Some(address?.to_canonical())
}

impl fmt::Debug for ClientIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIp")
            .field("header", &self.header)
            .field("trusted", &self.trusted)
            .finish_non_exhaustive()
    }
}
