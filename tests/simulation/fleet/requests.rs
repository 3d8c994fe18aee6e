//! What requests ask for and what replies say, read by what the scripts say of them and not by the crate's own code.

use tollgate::redis::Request;

/// How the requests of a policy are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// How many numbers a reply has for a call.
    pub(crate) step: usize,
    /// The numbers in a cost: only the first one counts.
    pub(crate) width: usize,
}

/// What a request is to do: behind its head, before a zero byte, the parameters of the rules, their kinds and its tail.
fn todo(request: &Request) -> &[u8] {
    let request = &request.argument;
    let count = count(request);
    &request[17..request.len() - 29 - 34 * count]
}

/// How many rules a request has.
fn count(request: &[u8]) -> usize {
    usize::from(request[request.len() - 1])
}

/// Whether a request asks for permits; else it is for changes.
pub(crate) fn is_take(request: &Request) -> bool {
    todo(request).first() == Some(&b'T')
}

/// Whether the key has a policy of a higher rank, so that nothing was done.
pub(crate) fn is_mismatch(reply: &[f64]) -> bool {
    reply.first().is_some_and(|&first| first < 0.0)
}

/// The first four bytes.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

impl Form {
    /// The calls that the request asks for, as `limit.lua` says.
    pub(crate) fn costs(&self, request: &Request) -> Vec<u32> {
        let calls = self.changes(request).into_iter().filter(|(what, _)| *what == b'T');
        calls
            .flat_map(|(_, run)| {
                let calls = [17, 18].map(|at| run[4 * self.width + at]);
                vec![number(&run[16..]); usize::from(u16::from_le_bytes(calls))]
            })
            .collect()
    }

    /// The calls of a request for permits that were booked: their costs, and their waits in microseconds.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a wait
    pub(crate) fn booked(&self, request: &Request, reply: &[f64]) -> Vec<(u32, u64)> {
        if is_mismatch(reply) {
            return Vec::new();
        }
        // One refusal may come without the sequence before it.
        let calls = if reply.len() == 1 { reply } else { &reply[1..] };
        let waits: Vec<_> = calls.chunks_exact(self.step).map(|call| call[0] as u64).collect();
        let costs = self.costs(request);
        assert_eq!(costs.len(), waits.len());
        let calls = costs.into_iter().zip(waits);
        calls.filter(|(_, wait)| wait & 3 == 0).map(|(cost, wait)| (cost, wait >> 2)).collect()
    }

    /// The changes that a request asks for, each with what follows its letter, as `limit.lua` says.
    pub(crate) fn changes<'a>(&self, request: &'a Request) -> Vec<(u8, &'a [u8])> {
        let mut todo = todo(request);
        let mut changes = Vec::new();
        while let [what, rest @ ..] = todo {
            let size = match what {
                b'T' => 19 + 4 * self.width,
                b'R' => 8 * self.width + 13,
                b'S' | b'D' => 4 * self.width,
                b'P' => 8,
                b'N' => 8 + 32 * count(&request.argument),
                _ => 0,
            };
            changes.push((*what, &rest[..size]));
            todo = &rest[size..];
        }
        changes
    }
}
