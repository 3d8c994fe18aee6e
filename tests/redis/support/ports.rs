//! Ports that nobody listens at.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that systems give to outgoing connections. Among those, a server's port could be
/// taken while it is down, and a client that polls it could even get connected to itself.
const FIRST: u32 = 10_240;
const LAST: u32 = 32_767;

/// A port that was free a moment ago. Another process may still be quicker to take it.
pub(super) fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const COUNT: u32 = LAST - FIRST + 1;
    // Programs that run side by side begin in different places.
    let offset = process::id().wrapping_mul(331) % COUNT;
    (0..COUNT)
        .map(|_| FIRST + (offset + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT)
        .filter_map(|port| u16::try_from(port).ok())
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .expect("one of many ports is free")
}
