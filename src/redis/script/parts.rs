//! The parts of a policy's script.

use std::sync::Arc;

use super::chunk::ChunkHeader;
use crate::redis::connection::Script;

/// The source of a script: a policy's file, and the parts of a composed policy.
#[derive(Clone, Debug)]
pub struct Lua {
    name: &'static str,
    pub(super) chunk: &'static str,
    pub(super) parts: Vec<Lua>,
    /// Whether the parts share one cost.
    pub(super) same: bool,
}

/// Both scripts of a policy.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) take: Arc<Script>,
    pub(crate) change: Arc<Script>,
    /// Whether each answer is followed by the part that limits.
    pub(crate) parts: bool,
    /// Whether a refusal changes anything.
    pub(crate) punish: bool,
    /// Whether newcomers may be refused as queue full.
    pub(crate) room: bool,
    /// For each part with permits in flight, the number of the cost that counts there.
    pub(crate) held: Vec<usize>,
    pub(crate) kind: String,
    /// Of a policy that is not composed: those have no short form.
    pub(crate) alone: Option<ChunkHeader>,
}

impl Lua {
    pub(super) fn leaf(name: &'static str, chunk: &'static str) -> Self {
        Self::of(name, chunk, Vec::new())
    }

    pub(super) fn composed(parts: Vec<Self>) -> Self {
        Self::of("compose", include_str!("lua/compose.lua"), parts)
    }

    pub(super) fn of(name: &'static str, chunk: &'static str, parts: Vec<Self>) -> Self {
        Self { name, chunk, parts, same: false }
    }

    pub(super) fn with_one_cost(self) -> Self {
        Self { same: true, ..self }
    }

    /// The kind of the policy, without its parameters: `compose(fixed_window in_flight)`.
    pub(super) fn kind(&self) -> String {
        let parts: Vec<_> = self.parts.iter().map(Self::kind).collect();
        let same = if self.same { "=" } else { "" };
        format!("{}{same}({})", self.name, parts.join(" "))
    }

    pub(super) fn header(&self) -> ChunkHeader {
        ChunkHeader::of(self.chunk)
    }

    fn any(&self, is: &impl Fn(&ChunkHeader) -> bool) -> bool {
        is(&self.header()) || self.parts.iter().any(|part| part.any(is))
    }

    pub(super) fn has(&self, function: &str) -> bool {
        self.any(&|header| header.also.contains(&function))
    }

    /// The number of parameters.
    pub(super) fn params(&self) -> usize {
        self.header().params.len() + self.parts.iter().map(Self::params).sum::<usize>()
    }

    /// The number of numbers in a cost.
    pub(super) fn numbers(&self) -> usize {
        match self.parts.as_slice() {
            [] => 1,
            [first, ..] if self.same => first.numbers(),
            parts => parts.iter().map(Self::numbers).sum(),
        }
    }

    pub(super) fn held(&self, from: &mut usize) -> Vec<usize> {
        let mut held = Vec::new();
        if self.header().also.contains(&"held") {
            held.push(*from);
        }
        let start = *from;
        for part in &self.parts {
            if self.same {
                *from = start;
            }
            held.extend(part.held(from));
        }
        *from += usize::from(self.parts.is_empty());
        held
    }

    /// A cost, made of the numbers `t[from]` and so on.
    pub(super) fn cost(&self, from: &mut usize) -> String {
        match self.parts.as_slice() {
            [] => {
                *from += 1;
                format!("t[{}]", *from - 1)
            }
            [first, ..] if self.same => first.cost(from),
            parts => {
                let parts: Vec<_> = parts.iter().map(|part| part.cost(from)).collect();
                format!("{{{}}}", parts.join(", "))
            }
        }
    }
}
