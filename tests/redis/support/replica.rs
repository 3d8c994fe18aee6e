//! A primary's replica, and the two changing places.

use std::ops::Deref;

use super::server::Server;
use super::until;

/// A server that follows another one. It can be used like any server.
pub(crate) struct Replica {
    server: Server,
}

impl Replica {
    /// Returns when the new replica is in sync with the primary.
    pub(crate) fn of(primary: &Server) -> Self {
        let replica = Self { server: Server::start() };
        demote(&replica.server, primary);
        replica
    }

    /// Waits until everything that was written to the primary before is here as well.
    pub(crate) fn wait_synced(&self, primary: &Server) {
        wait_synced(&self.server, primary);
    }

    /// It follows no primary from now on, and takes writes.
    pub(crate) fn promote(&self) {
        self.command(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(self.info("replication")["role"], "master");
    }
}

impl Deref for Replica {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// Makes `server` a replica of `to`, which discards its data, and waits until it is in sync.
pub(crate) fn demote(server: &Server, to: &Server) {
    server.command(&["REPLICAOF", "127.0.0.1", &to.port().to_string()]);
    wait_synced(server, to);
}

fn wait_synced(replica: &Server, primary: &Server) {
    let offset = |server: &Server, name| -> Option<u64> {
        let info = server.info("replication");
        if info.get("master_link_status").is_some_and(|status| status != "up") {
            return None;
        }
        Some(info.get(name)?.parse().expect("a number"))
    };
    let written = offset(primary, "master_repl_offset").expect("each server has one");
    until("the replica has what the primary has", || {
        offset(replica, "slave_repl_offset").is_some_and(|read| read >= written)
    });
}
