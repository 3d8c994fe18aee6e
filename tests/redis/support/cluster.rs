//! A Redis cluster whose nodes fail and whose slots move when a test says so.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::server::Server;
use super::until;

const SLOTS: u16 = 16_384;

/// A node gives up on a handshake after a second, even on a busy machine, and does not retry it.
const MEET_AGAIN: Duration = Duration::from_millis(1_500);

/// Masters come first, then the replicas of the first round, in the order of their masters.
pub(crate) struct Cluster {
    nodes: Vec<Server>,
    ids: HashMap<String, usize>,
}

/// One node's view of another.
struct Seen {
    node: usize,
    flags: Vec<String>,
    connected: bool,
    slots: Vec<(u16, u16)>,
}

impl Cluster {
    /// Starts nodes, `replicas` of them for each master, and gives the masters equal parts of the slots.
    pub(crate) fn start(masters: usize, replicas: usize) -> Self {
        Self::with(masters, replicas, &[])
    }

    pub(crate) fn with(masters: usize, replicas: usize, options: &[&str]) -> Self {
        let mut all = vec![
            // The least that is not taken for a failure when the machine is busy.
            "--cluster-node-timeout",
            "800",
            "--cluster-replica-validity-factor",
            "0",
            // Nothing changes that no test asked for: no replica leaves its master for another one.
            "--cluster-migration-barrier",
            "1000",
        ];
        all.extend_from_slice(options);
        let nodes: Vec<_> =
            (0..masters * (1 + replicas)).map(|_| Server::in_cluster(&all)).collect();
        let id = |node: &Server| node.query::<String>(&["CLUSTER", "MYID"]);
        let ids = nodes.iter().enumerate().map(|(index, node)| (id(node), index)).collect();
        let cluster = Self { nodes, ids };
        cluster.introduce();
        cluster.assign(masters);
        cluster.wait_ok();
        cluster
    }

    /// Each to each, as gossip would take seconds.
    fn introduce(&self) {
        for (epoch, node) in (1..).zip(&self.nodes) {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &u64::to_string(&epoch)]);
        }
        let mut met = None::<Instant>;
        until("all nodes of the cluster know each other", || {
            if met.is_none_or(|met| met.elapsed() > MEET_AGAIN) {
                self.meet();
                met = Some(Instant::now());
            }
            self.nodes.iter().all(|node| {
                let seen = self.seen_by(node);
                seen.len() == self.nodes.len() && seen.iter().all(|other| other.connected)
            })
        });
    }

    /// Lets nodes meet that do not know each other yet.
    fn meet(&self) {
        let known: Vec<Vec<_>> = self
            .nodes
            .iter()
            .map(|node| self.seen_by(node).iter().map(|other| other.node).collect())
            .collect();
        for (index, node) in self.nodes.iter().enumerate() {
            for (other_index, other) in self.nodes.iter().enumerate().skip(index + 1) {
                if !known[index].contains(&other_index) || !known[other_index].contains(&index) {
                    node.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
                }
            }
        }
    }

    fn assign(&self, masters: usize) {
        for (index, node) in self.nodes[..masters].iter().enumerate() {
            let border = |index| usize::from(SLOTS) * index / masters;
            let slots = (border(index)..border(index + 1)).map(|slot| slot.to_string());
            let words = ["CLUSTER", "ADDSLOTS"].map(str::to_owned).into_iter().chain(slots);
            node.command(&words.collect::<Vec<_>>());
        }
        for (index, node) in self.nodes.iter().enumerate().skip(masters) {
            node.command(&["CLUSTER", "REPLICATE", &self.id(index % masters)]);
        }
        let count = |seen: &[Seen], flag| seen.iter().filter(|other| other.is(flag)).count();
        let replicas = self.nodes.len() - masters;
        until("all nodes of the cluster know the replicas", || {
            self.nodes.iter().all(|node| count(&self.seen_by(node), "slave") == replicas)
        });
        until("all replicas follow their masters", || {
            self.nodes[masters..].iter().all(|node| {
                node.info("replication").get("master_link_status").is_some_and(|s| s == "up")
            })
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn node(&self, index: usize) -> &Server {
        &self.nodes[index]
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    pub(crate) fn slot_of(&self, key: &str) -> u16 {
        self.serving().query(&["CLUSTER", "KEYSLOT", key])
    }

    /// The index of the master that owns a slot.
    #[track_caller]
    pub(crate) fn node_of_slot(&self, slot: u16) -> usize {
        self.owners(self.serving())[usize::from(slot)].expect("the slot has an owner")
    }

    #[track_caller]
    pub(crate) fn node_of_key(&self, key: &str) -> usize {
        self.node_of_slot(self.slot_of(key))
    }

    /// SIGKILL. The others take notice after the node timeout; see [`wait_ok`](Self::wait_ok).
    pub(crate) fn kill_node(&self, index: usize) {
        self.nodes[index].kill();
    }

    /// Waits until all serving nodes agree on the owner of each slot, and all owners serve.
    #[track_caller]
    pub(crate) fn wait_ok(&self) {
        until("the cluster is well", || {
            let mut serving = self.nodes.iter().filter(|node| node.is_serving());
            let owners = self.owners(self.serving());
            let served = |owner: &Option<usize>| owner.is_some_and(|o| self.nodes[o].is_serving());
            owners.iter().all(served)
                && serving.all(|node| {
                    let info: String = node.query(&["CLUSTER", "INFO"]);
                    info.contains("cluster_state:ok") && self.owners(node) == owners
                })
        });
    }

    /// Begins to move a slot. From here on its owner sends callers on for a key that it has not got.
    #[track_caller]
    pub(crate) fn migrate_slot(&self, slot: u16, to: usize) -> Migration<'_> {
        let from = self.node_of_slot(slot);
        assert_ne!(from, to, "the slot is there already");
        let migration = Migration { cluster: self, slot, from, to };
        migration.set(to, "IMPORTING", from);
        migration.set(from, "MIGRATING", to);
        migration
    }

    fn serving(&self) -> &Server {
        self.nodes.iter().find(|node| node.is_serving()).expect("a node serves")
    }

    fn id(&self, index: usize) -> String {
        let mut ids = self.ids.iter();
        ids.find(|&(_, &node)| node == index).expect("each node has one").0.clone()
    }

    /// The owner of each slot as `node` believes.
    fn owners(&self, node: &Server) -> Vec<Option<usize>> {
        let mut owners = vec![None; usize::from(SLOTS)];
        for master in self.seen_by(node).iter().filter(|other| !other.is("fail")) {
            for &(first, last) in &master.slots {
                owners[usize::from(first)..=usize::from(last)].fill(Some(master.node));
            }
        }
        owners
    }

    /// Those that are no more than introduced are not among them.
    fn seen_by(&self, node: &Server) -> Vec<Seen> {
        let text: String = node.query(&["CLUSTER", "NODES"]);
        text.lines()
            .filter_map(|line| {
                let words: Vec<_> = line.split(' ').collect();
                let &node = self.ids.get(words[0])?;
                // A slot on the move is listed once more, in brackets.
                let slots = words[8..].iter().filter(|word| !word.starts_with('['));
                Some(Seen {
                    node,
                    flags: words[2].split(',').map(str::to_owned).collect(),
                    connected: words[7] == "connected",
                    slots: slots.map(|range| ends(range)).collect(),
                })
            })
            .collect()
    }
}

impl Seen {
    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|has| has == flag)
    }
}

/// `5-7` or `5`.
fn ends(range: &str) -> (u16, u16) {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let slot = |text: &str| text.parse().expect("a slot");
    (slot(first), slot(last))
}

/// A slot on the move. Dropped unfinished it stays so.
#[must_use = "the slot stays on the move until `finish` is called"]
pub(crate) struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl Migration<'_> {
    pub(crate) fn from(&self) -> usize {
        self.from
    }

    pub(crate) fn to(&self) -> usize {
        self.to
    }

    /// Moves the keys that are there now. The slot still belongs to the old owner, which answers `ASK`.
    pub(crate) fn move_keys(&self) {
        let (from, to) = (self.cluster.node(self.from), self.cluster.node(self.to));
        let (slot, port) = (self.slot.to_string(), to.port().to_string());
        loop {
            let keys: Vec<Vec<u8>> =
                from.query(&["CLUSTER", "GETKEYSINSLOT", slot.as_str(), "100"]);
            if keys.is_empty() {
                return;
            }
            let head = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            let words: Vec<_> = head
                .iter()
                .map(|word| word.as_bytes())
                .chain(keys.iter().map(Vec::as_slice))
                .collect();
            from.command(&words);
        }
    }

    /// Moves the rest and makes the new owner known to all: the old one answers `MOVED` from now
    /// on.
    pub(crate) fn finish(self) {
        self.move_keys();
        let Self { cluster, to, from, .. } = self;
        self.set(to, "NODE", to);
        self.set(from, "NODE", to);
        until("all nodes know of the slot's new owner", || {
            let mut serving = cluster.nodes.iter().filter(|node| node.is_serving());
            serving.all(|node| cluster.owners(node)[usize::from(self.slot)] == Some(to))
        });
    }

    fn set(&self, at: usize, what: &str, node: usize) {
        let (slot, id) = (self.slot.to_string(), self.cluster.id(node));
        self.cluster.node(at).command(&["CLUSTER", "SETSLOT", &slot, what, &id]);
    }
}
