//! What proxies say of the client: lists of addresses, to which each proxy appends the address it was called from.
//!
//! A list is read from its end: what stands before the entry of the first trusted proxy is the client's own text. Nothing
//! in that text, such as a quotation mark without its pair, may change how the entries behind it are read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;

/// The proxies whose entries are believed, and the header to which they append them.
#[derive(Clone, Debug)]
pub(super) struct Proxies {
    pub(super) header: HeaderName,
    pub(super) trusted: Vec<IpNet>,
}

impl Proxies {
    /// The last address that is not trusted. An entry that is no address ends the search at the proxy that wrote it.
    pub(super) fn client_of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        for line in headers.get_all(&self.header).iter().rev() {
            let mut rest = Some(line.as_bytes());
            while let Some(text) = rest {
                let is_trusted = self.trusted.iter().any(|network| network.contains(&client));
                let entry = if is_trusted { cut_last(text, b',') } else { None };
                let Some((before, entry)) = entry else { return client };
                let Some(address) = self.address_in(entry) else { return client };
                (client, rest) = (address, before);
            }
        }
        client
    }

    fn address_in(&self, entry: &[u8]) -> Option<IpAddr> {
        let node = if self.header == FORWARDED { node_of(entry)? } else { entry };
        let text = str::from_utf8(node.trim_ascii()).ok()?;
        address(text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text))
    }
}

/// What stands before the last `separator` that is not quoted, and behind it. `None` if a quotation mark has no pair.
fn cut_last(text: &[u8], separator: u8) -> Option<(Option<&[u8]>, &[u8])> {
    let mut is_quoted = false;
    for (at, &byte) in text.iter().enumerate().rev() {
        if byte == b'"' && !ends_in_escape(&text[..at]) {
            is_quoted = !is_quoted;
        } else if byte == separator && !is_quoted {
            return Some((Some(&text[..at]), &text[at + 1..]));
        }
    }
    (!is_quoted).then_some((None, text))
}

fn ends_in_escape(text: &[u8]) -> bool {
    text.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The value of `for` in an element of `Forwarded` (RFC 7239). `None` if there is not exactly one.
fn node_of(element: &[u8]) -> Option<&[u8]> {
    let (mut node, mut rest) = (None, Some(element));
    while let Some(text) = rest {
        let (before, pair) = cut_last(text, b';')?;
        let pair = pair.trim_ascii();
        let is_for = pair.get(..4).is_some_and(|name| name.eq_ignore_ascii_case(b"for="));
        if is_for && node.replace(&pair[4..]).is_some() {
            return None;
        }
        rest = before;
    }
    node
}

/// An address with or without a port, which may be hidden as `_name`; of IPv6 with or without brackets.
fn address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(address.to_canonical());
    }
    let is_port = |port: &str| port.parse::<u16>().is_ok() || port.starts_with('_');
    let host = match text.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => text,
    };
    match host.strip_prefix('[') {
        Some(host) => Some(host.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?.to_canonical()),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}
