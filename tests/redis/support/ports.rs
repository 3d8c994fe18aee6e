//! Ports without a listener.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that systems give to outgoing connections. Among those, a server's port could be
/// taken while it is down, and a client that polls it could even get connected to itself.
const FIRST: u32 = 10_240;
const LAST: u32 = 32_767;

/// How far above its port a node of a cluster listens to the others. Redis 6 has no option for it.
const TO_BUS: u16 = 10_000;

/// A port that was free a moment ago. Another process may still be quicker to take it.
pub(super) fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const COUNT: u32 = LAST - FIRST + 1;
    // Programs that run side by side begin in different places.
    let offset = process::id().wrapping_mul(331) % COUNT;
    (0..COUNT)
        .map(|_| FIRST + (offset + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT)
        .filter_map(|port| u16::try_from(port).ok())
        .find(|&port| is_free(port))
        .expect("one of many ports is free")
}

/// The same for a node of a cluster: the port of its bus is free and below those others too.
pub(super) fn free_with_bus() -> u16 {
    loop {
        let port = free();
        let bus = port + TO_BUS;
        if u32::from(bus) <= LAST && is_free(bus) {
            return port;
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
