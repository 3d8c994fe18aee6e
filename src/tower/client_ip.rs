//! From which client a request comes.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;

use http::header::{FORWARDED, HeaderMap, HeaderName};
use http::request::Parts;
use ipnet::{IpNet, Ipv6Net};

/// The IP address of a client, as a key for [`RefuseLayer::by_ip`](super::RefuseLayer::by_ip).
///
/// It is the address from which the connection comes, or, [behind proxies](Self::trusted_proxies), the last address
/// that no trusted proxy has. A header counts only if a trusted proxy sent the request.
///
/// **An IPv6 address counts as its /64 network** ([`ipv6_prefix`](Self::ipv6_prefix)), because one subscriber has at least that
/// many addresses: `2001:db8:0:7::`. An IPv4 address that is mapped to IPv6 (`::ffff:192.0.2.1`) is the IPv4 address.
///
/// ```
/// use std::net::SocketAddr;
/// use axum::extract::ConnectInfo;
/// use http::Request;
/// use tollgate::tower::ClientIp;
///
/// let client = ClientIp::peer::<ConnectInfo<SocketAddr>>()
///     .trusted_proxies("x-forwarded-for", ["10.0.0.0/8"])?;
/// let ip_of = |peer: &str, header: &str| {
///     let request = Request::get("/").header("x-forwarded-for", header);
///     let peer = ConnectInfo::<SocketAddr>(peer.parse().unwrap());
///     client.of(&request.extension(peer).body(()).unwrap().into_parts().0).unwrap().to_string()
/// };
/// assert_eq!(ip_of("10.0.0.1:80", "192.0.2.9, 203.0.113.7, 10.0.0.2"), "203.0.113.7");
/// assert_eq!(ip_of("203.0.113.8:80", "192.0.2.9"), "203.0.113.8"); // not sent by a proxy
/// assert_eq!(ip_of("10.0.0.1:80", "2001:db8:0:7::42"), "2001:db8:0:7::");
/// # Ok::<(), tollgate::tower::InvalidProxy>(())
/// ```
#[derive(Clone)]
pub struct ClientIp {
    peer: PeerOf,
    proxies: Option<Proxies>,
    ipv6_prefix: u8,
}

/// The proxies whose entries are believed, and the header to which they append them.
#[derive(Clone, Debug)]
struct Proxies {
    header: HeaderName,
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
        Self { peer: Arc::new(peer), proxies: None, ipv6_prefix: 64 }
    }

    /// Believes these proxies, addresses or networks, when they say in `header` from where they were called.
    ///
    /// **Name the header to which your proxies append, or which they replace**, such as `x-forwarded-for` or
    /// `cf-connecting-ip`. This header alone is read. One that your proxies pass on as it came is the client's own text.
    /// It is a list of addresses, each with or without a port; several lines are one list. `Forwarded` of RFC 7239 is not
    /// read.
    ///
    /// The list is read from its end, as long as the addresses are trusted. An entry that is no address (`unknown`,
    /// `_hidden`, an empty one) ends it: the client is then the proxy that wrote the entry, and all such clients share
    /// its limit. Without the header the client is the proxy itself, as in its own health checks.
    ///
    /// # Errors
    ///
    /// A proxy that is neither an address nor a network (`10.0.0.1/8` has bits behind its prefix), a network of all
    /// addresses, or a `header` that is no name of one or is `forwarded`.
    pub fn trusted_proxies<N: AsRef<str>>(
        self,
        header: &str,
        proxies: impl IntoIterator<Item = N>,
    ) -> Result<Self, InvalidProxy> {
        let invalid = |text: &str, why| InvalidProxy { text: text.to_owned(), why };
        let network = |text: N| {
            let text = text.as_ref();
            network_of(text).ok_or_else(|| {
                invalid(text, "no proxy: write an address, or a network such as 10.0.0.0/8")
            })
        };
        let trusted = proxies.into_iter().map(network).collect::<Result<_, _>>()?;
        let name = HeaderName::from_bytes(header.as_bytes())
            .map_err(|_| invalid(header, "no name of a header"))?;
        if name == FORWARDED {
            return Err(invalid(header, "not read: let the proxies write x-forwarded-for"));
        }
        Ok(Self { proxies: Some(Proxies { header: name, trusted }), ..self })
    }

    /// How many leading bits of an IPv6 address count, at most 128. Default: 64. Some providers give each subscriber
    /// a /56 or a /48.
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Self { ipv6_prefix: bits.min(128), ..self }
    }

    /// The address of the client. `None` if the server did not say from where the request comes.
    #[must_use]
    pub fn of(&self, request: &Parts) -> Option<IpAddr> {
        let peer = (self.peer)(request)?.to_canonical();
        let proxies = self.proxies.as_ref();
        let client = proxies.map_or(peer, |proxies| proxies.client_of(peer, &request.headers));
        Some(match client {
            IpAddr::V6(address) => Ipv6Net::new_assert(address, self.ipv6_prefix).network().into(),
            IpAddr::V4(_) => client,
        })
    }
}

impl Proxies {
    /// The last address that is not trusted. What stands before the entry of the first trusted proxy is the client's own
    /// text. An entry that is no address ends the search at the proxy that wrote it.
    fn client_of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let lines = headers.get_all(&self.header).iter().rev();
        let mut client = peer;
        for entry in lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b',')) {
            let is_trusted = self.trusted.iter().any(|network| network.contains(&client));
            match str::from_utf8(entry).ok().and_then(|text| address(text.trim())) {
                Some(address) if is_trusted => client = address,
                _ => break,
            }
        }
        client
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

/// `10.0.0.0/8`, or one address. `None` if it is written in another way, or holds all addresses.
fn network_of(text: &str) -> Option<IpNet> {
    let address = || text.parse().map(|address: IpAddr| address.into());
    let network: IpNet = text.parse().or_else(|_| address()).ok()?;
    // Peers are compared as IPv4 where they are mapped.
    let first = network.addr().to_canonical();
    (network.prefix_len() > 0 && network.network() == first).then_some(network)
}

impl fmt::Debug for ClientIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIp")
            .field("proxies", &self.proxies)
            .field("ipv6_prefix", &self.ipv6_prefix)
            .finish_non_exhaustive()
    }
}

/// The error of [`ClientIp::trusted_proxies`].
///
/// ```
/// use tollgate::tower::ClientIp;
///
/// let error = ClientIp::peer_by(|_| None).trusted_proxies("forwarded", ["10.0.0.1/8"]).unwrap_err();
/// assert!(error.to_string().starts_with("`10.0.0.1/8` is no proxy: write an address"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidProxy {
    text: String,
    why: &'static str,
}

impl fmt::Display for InvalidProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}", self.text, self.why)
    }
}

impl std::error::Error for InvalidProxy {}
