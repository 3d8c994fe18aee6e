//! What requests ask for and what replies say, read by what the scripts say of them and not by the crate's own code.

use tollgate::redis::{Reply, Request};

/// How the requests of a policy are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// How many bytes of a request are the policy's.
    pub(crate) header: usize,
    /// How many numbers a reply has for a call.
    pub(crate) step: usize,
    /// The numbers in a cost: only the first one counts.
    pub(crate) width: usize,
}

/// A call that was booked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Booked {
    pub(crate) cost: u32,
    /// In microseconds.
    pub(crate) wait: u64,
    /// The lower bits of the number of its charge.
    pub(crate) sequence: u32,
}

/// Whether a request asks for permits; else it is for changes.
pub(crate) fn is_take(request: &Request) -> bool {
    request.script.text().contains("local function ask(")
}

/// The first four bytes.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

impl Form {
    /// The calls that the request asks for: the arguments are runs, as `take.lua` says.
    pub(crate) fn costs(&self, request: &Request) -> Vec<u32> {
        let size = 4 * self.width;
        let mut costs = Vec::new();
        let first = &request.arguments[0];
        // An odd stamp: the rank follows the calls.
        let first = &first[self.header..first.len() - 12 * usize::from(first[0] % 2)];
        let others = request.arguments.get(1).map_or(&[][..], Vec::as_slice);
        for mut runs in [first, others] {
            while !runs.is_empty() {
                let (cost, count) = (number(runs), number(&runs[size..]));
                let kind = runs[size + 20];
                if kind == 4 {
                    // They get no answer.
                    runs = &runs[size + 21..];
                    continue;
                }
                let mixed = kind > 1;
                costs.push(cost);
                runs = &runs[size + 21..];
                for _ in 1..count {
                    costs.push(if mixed { number(runs) } else { cost });
                    runs = if mixed { &runs[size..] } else { runs };
                }
            }
        }
        costs
    }

    /// The calls of a request for permits that were booked.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the lower bits
    pub(crate) fn booked(&self, request: &Request, reply: &Reply) -> Vec<Booked> {
        let (mut sequence, waits): (_, Vec<Option<u64>>) = match reply {
            Reply::Number(value) => {
                let wait = (value.unsigned_abs() & 0xf_ffff) >> 2;
                let number = (value >> 20) as u32;
                (number.wrapping_sub(1), vec![(value & 3 == 0).then_some(wait)])
            }
            Reply::Numbers(values) => {
                let at_once = usize::try_from(values[1]).expect("a count");
                let others = values[2..].chunks_exact(self.step);
                let others = others.map(|v| (v[0] & 3 == 0).then_some(v[0].unsigned_abs() >> 2));
                (values[0] as u32, std::iter::repeat_n(Some(0), at_once).chain(others).collect())
            }
            _ => return Vec::new(),
        };
        let costs = self.costs(request);
        assert_eq!(costs.len(), waits.len());
        let booked = costs.into_iter().zip(waits).filter_map(|(cost, wait)| {
            let wait = wait?;
            sequence = sequence.wrapping_add(1);
            Some(Booked { cost, wait, sequence })
        });
        booked.collect()
    }

    /// The changes that a request asks for, each with what follows its letter, as `change.lua` says.
    pub(crate) fn changes<'a>(&self, request: &'a Request) -> Vec<(u8, &'a [u8])> {
        let mut todo = request.arguments.get(1).map_or(&[][..], Vec::as_slice);
        let mut changes = Vec::new();
        while let [what, rest @ ..] = todo {
            let size = match what {
                b'R' => 8 * self.width + 13,
                b'S' | b'L' | b'D' => 4 * self.width,
                b'P' => 8,
                _ => 0,
            };
            changes.push((*what, &rest[..size]));
            todo = &rest[size..];
        }
        changes
    }
}
