//! The header of a policy's file, and the functions generated from it.

use std::fmt::Write as _;

/// Where the parameters begin in the first argument, counted from one.
pub(super) const PARAMETERS: usize = 21;

/// The first lines of a policy's file.
#[derive(Debug, Default)]
pub(crate) struct ChunkHeader {
    pub(super) params: Vec<&'static str>,
    /// The short form of the parameters in a key: the format of the first of them, and the values of the
    /// others, each a number or the name of a parameter.
    pub(super) short: &'static str,
    pub(super) rest: Vec<&'static str>,
    pub(super) format: String,
    pub(super) fields: Vec<&'static str>,
    pub(super) tail: bool,
    /// Whether it keeps how much of a charge may come back: `lua/lows.lua`.
    pub(super) lows: bool,
    pub(super) is_part: bool,
    /// Functions besides the five that every policy has; and `numbers`, if a refund compares the numbers of charges:
    /// otherwise it only asks whether its charge was the last.
    pub(super) also: Vec<&'static str>,
}

impl ChunkHeader {
    pub(super) fn of(chunk: &'static str) -> Self {
        let mut header = Self::default();
        for line in chunk.lines().filter_map(|line| line.strip_prefix("--@ ")) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("params") => header.params = words.collect(),
                Some("short") => {
                    header.short = words.next().unwrap_or_default();
                    header.rest = words.collect();
                }
                Some("fields") => {
                    header.format = words.next().unwrap_or_default().to_owned();
                    header.fields = words.collect();
                }
                Some("tail") => header.tail = true,
                Some("lows") => header.lows = true,
                Some("also") => header.also = words.collect(),
                _ => {}
            }
        }
        header
    }

    /// The same as a part of a composed policy: with the number of its last charge, as it may not be charged with
    /// each charge of the key.
    pub(super) fn into_part(mut self) -> Self {
        self.is_part = true;
        if self.lows {
            self.fields.push("top");
            self.format += "I4";
        }
        self
    }

    /// Whether the short form holds these parameters exactly.
    pub(crate) fn is_short(&self, parameters: &[f64]) -> bool {
        let count = items(self.short).count();
        let Some((first, rest)) = parameters.split_at_checked(count) else { return false };
        let holds = |(item, &number): (Item, &f64)| item.holds(number);
        items(self.short).zip(first).all(holds) && self.rest(first).as_deref() == Some(rest)
    }

    /// The parameters in their short form.
    pub(crate) fn read_short(&self, bytes: &[u8]) -> Option<Vec<f64>> {
        let (mut bytes, mut parameters) = (bytes, Vec::new());
        for item in items(self.short) {
            let (number, others) = bytes.split_at_checked(item.size.into())?;
            parameters.push(item.read(number));
            bytes = others;
        }
        parameters.extend(self.rest(&parameters)?);
        Some(parameters)
    }

    /// The parameters that the short form leaves out.
    fn rest(&self, first: &[f64]) -> Option<Vec<f64>> {
        let value = |word: &&str| match self.params.iter().position(|param| param == word) {
            Some(index) => first.get(index).copied(),
            None => word.parse().ok(),
        };
        self.rest.iter().map(value).collect()
    }

    /// An expression for all parameters from their short form.
    pub(super) fn widen(&self, short: &str) -> String {
        if self.rest.is_empty() {
            return format!("struct.unpack('<{}', {short})", self.short);
        }
        let (first, _) = self.params.split_at(items(self.short).count());
        let (first, rest) = (first.join(", "), self.rest.join(", "));
        format!(
            "(function() local {first} = struct.unpack('<{}', {short}) return {first}, {rest} end)()",
            self.short
        )
    }

    /// The state as bytes.
    pub(super) fn pack(&self) -> String {
        let fields: String = self.fields.iter().map(|field| format!(", {field}")).collect();
        let pack = format!("struct.pack('<{}'{fields})", self.format);
        if self.lows {
            return format!(
                "low and struct.pack('<{}{LOWS_FORMAT}'{fields}, {LOWS}) or {pack}",
                self.format
            );
        }
        if self.tail { format!("write({pack})") } else { pack }
    }

    /// The state from `bytes`, from `at` to `last`.
    pub(super) fn unpack(&self) -> String {
        let mut unpack = self.fields.join(", ");
        let _ = write!(unpack, ", at = struct.unpack('<{}', bytes, at)", self.format);
        if self.tail {
            unpack += " read(bytes, at, last)";
        }
        if self.lows {
            let read = format!("{LOWS} = struct.unpack('<{LOWS_FORMAT}', bytes, at)");
            let _ = write!(unpack, " if at < last then {read} else low = nil end");
        }
        unpack
    }
}

/// A number in a format: `d`, or `B`, `I` and `i` with its size in bytes.
struct Item {
    letter: char,
    size: u8,
}

impl Item {
    /// The least integer that it holds, and how many.
    #[allow(clippy::cast_precision_loss)] // of a power of two there is none
    fn integers(&self) -> (f64, f64) {
        let count = (1u128 << (8 * u32::from(self.size))) as f64;
        (if self.letter == 'i' { -count / 2.0 } else { 0.0 }, count)
    }

    fn holds(&self, number: f64) -> bool {
        let (least, count) = self.integers();
        self.letter == 'd' || number.fract() == 0.0 && (least..least + count).contains(&number)
    }

    #[allow(clippy::cast_precision_loss)] // less than 53 bits
    fn read(&self, bytes: &[u8]) -> f64 {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        let ((least, count), number) = (self.integers(), u64::from_le_bytes(all) as f64);
        match self.letter {
            'd' => f64::from_le_bytes(all),
            _ if number < least + count => number,
            _ => number - count,
        }
    }
}

fn items(format: &str) -> impl Iterator<Item = Item> {
    let sizes = format.split(char::is_alphabetic).skip(1);
    let letters = format.chars().filter(|letter| letter.is_alphabetic());
    letters.zip(sizes).map(|(letter, size)| {
        let size = if letter == 'd' { 8 } else { size.parse().unwrap_or(1) };
        Item { letter, size }
    })
}

/// How many bytes a format takes.
pub(super) fn size(format: &str) -> usize {
    items(format).map(|item| usize::from(item.size)).sum()
}

/// What `lua/lows.lua` keeps in a key: the levels, and the numbers that are read only to be changed.
pub(super) const LOWS: &str = "low, low2, low3, low4, void, end2, end3, end4";
pub(super) const LOWS_FORMAT: &str = "ddddI4I4I4I4";
const LEVELS: usize = 32;

/// Reads the numbers of a policy that is not a part, from where they are in its key.
pub(super) fn read_numbers(state: usize) -> String {
    let at = state + LEVELS + 1;
    format!("if not end2 then void, end2, end3, end4 = struct.unpack('<I4I4I4I4', blob, {at}) end")
}

/// Whether a cost asks for nothing.
pub(super) const IS_ZERO: &str = "local function is_zero(cost)
  if type(cost) == 'number' then return cost == 0 end
  for i = 1, #cost do if not is_zero(cost[i]) then return false end end
  return true
end
";

/// Subtracts costs; gives the next larger cost that is at least another; and rounds down to whole permits, without
/// losing one to rounding errors.
pub(super) const HELPERS: &str = "local function less(cost, other)
  if type(cost) == 'number' then return math.max(cost - other, 0) end
  local rest = {}
  for i = 1, #cost do rest[i] = less(cost[i], other[i]) end
  return rest
end
local function beyond(cost, other)
  if type(cost) == 'number' then return math.max(cost + 1, other) end
  local more = {}
  for i = 1, #cost do more[i] = beyond(cost[i], other[i]) end
  return more
end
local function whole(permits)
  return math.min(math.floor(math.max(permits, 0) * (1 + 1e-14) + 1e-9), 4294967295)
end
";

/// The limits of a policy that is not composed.
pub(super) const LIMITS: &str =
    "local function limits(shut, add) add(shut, available(), ready) end\n";

/// Migrates a state that was kept under the parameters in `bytes` to the current ones; that of an absent key
/// if no time is given.
pub(super) fn become_function(header: &ChunkHeader, from: usize) -> String {
    let params = header.params.join(", ");
    let format = "d".repeat(header.params.len());
    format!(
        "local function become(bytes, elapsed, idle)\n  \
           {params} = struct.unpack('<{format}', bytes, {})\n  \
           if elapsed then resume(elapsed) else begin(idle) end\n  \
           local old = {{{params}}}\n  \
           {params} = struct.unpack('<{format}', params, {from})\n  \
           migrate(unpack(old))\n{}\
         end\n",
        from - PARAMETERS + 1,
        if header.lows { "forget_lows()\n" } else { "" },
    )
}

/// Saving the state and restoring it.
pub(super) fn snapshot_functions(header: &ChunkHeader) -> String {
    format!(
        "local function state() return {} end\n\
         local function restore(bytes)\n  local at, last = 1, #bytes\n  {}\nend\n",
        header.pack(),
        header.unpack(),
    )
}

#[cfg(test)]
mod tests {
    use crate::redis::Scripted;
    use crate::{FixedWindow, TokenBucket};

    #[test]
    fn the_short_form_is_used_only_where_it_holds_all_parameters() {
        let bucket = TokenBucket::lua().header();
        let whole = f64::from(u32::MAX);
        for (parameters, is_short) in [
            (&[0.3, 10.0, 10.0, 0.0][..], true),
            (&[0.3, whole, whole, 0.0], true),
            (&[0.3, whole + 1.0, whole + 1.0, 0.0], false),
            (&[0.3, 10.5, 10.5, 0.0], false),
            (&[0.3, -1.0, -1.0, 0.0], false),
            (&[0.3, 10.0, 9.0, 0.0], false),
            (&[0.3, 10.0, 10.0, 1.0], false),
            (&[0.3, 10.0, 10.0], false),
            (&[0.3], false),
        ] {
            assert_eq!(bucket.is_short(parameters), is_short, "{parameters:?}");
        }
        // Five bytes, and five with a sign.
        let window = FixedWindow::lua().header();
        let half = f64::from(1 << 19) * f64::from(1 << 20);
        for (grid, is_short) in
            [(-1.0, true), (half - 1.0, true), (half, false), (-half, true), (-half - 1.0, false)]
        {
            assert_eq!(window.is_short(&[7.0, 1e6, grid]), is_short, "{grid}");
        }
        assert!(
            window.is_short(&[7.0, 2.0 * half - 1.0, 0.0])
                && !window.is_short(&[7.0, 2.0 * half, 0.0])
        );
        let bytes = [&7u32.to_le_bytes()[..], &[0x40, 0x42, 0x0f, 0, 0], &[0xff; 5]].concat();
        assert_eq!(window.read_short(&bytes), Some(vec![7.0, 1e6, -1.0]));
        assert_eq!(window.read_short(&bytes[..13]), None);
        let least = [&bytes[..9], &[0, 0, 0, 0, 0x80]].concat();
        assert_eq!(window.read_short(&least), Some(vec![7.0, 1e6, -half]));
    }
}
