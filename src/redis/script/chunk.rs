//! The header of a policy's file, and the functions generated from it.

use std::fmt::Write as _;

/// Where the parameters begin in the first argument, counted from one.
pub(super) const PARAMETERS: usize = 17;

/// The first lines of a policy's file.
#[derive(Debug, Default)]
pub(super) struct ChunkHeader {
    pub(super) params: Vec<&'static str>,
    pub(super) format: &'static str,
    pub(super) fields: Vec<&'static str>,
    pub(super) tail: bool,
    /// Functions besides the five that every policy has; and `several`, if `charge` takes a number of callers:
    /// otherwise a charge for the sum is the same as one for each.
    pub(super) also: Vec<&'static str>,
}

impl ChunkHeader {
    pub(super) fn of(chunk: &'static str) -> Self {
        let mut header = Self::default();
        for line in chunk.lines().filter_map(|line| line.strip_prefix("--@ ")) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("params") => header.params = words.collect(),
                Some("fields") => {
                    header.format = words.next().unwrap_or_default();
                    header.fields = words.collect();
                }
                Some("tail") => header.tail = true,
                Some("also") => header.also = words.collect(),
                _ => {}
            }
        }
        header
    }

    /// The size in bytes of what is in the key before the parameters.
    pub(super) fn size(&self) -> usize {
        let integers = self.format.matches("I4").count();
        28 + 4 * integers + 8 * (self.format.len() - 2 * integers)
    }

    /// The state as bytes.
    pub(super) fn pack(&self) -> String {
        let mut pack = format!("struct.pack('<{}'", self.format);
        for field in &self.fields {
            let _ = write!(pack, ", {field}");
        }
        pack.push(')');
        if self.tail { format!("write({pack})") } else { pack }
    }

    /// The state from `bytes`, from `at` to `last`.
    pub(super) fn unpack(&self) -> String {
        let mut unpack = self.fields.join(", ");
        let _ = write!(unpack, ", at = struct.unpack('<{}', bytes, at)", self.format);
        if self.tail {
            unpack += " read(bytes, at, last)";
        }
        unpack
    }
}

/// Whether a cost asks for nothing.
pub(super) const IS_ZERO: &str = "local function is_zero(cost)
  if type(cost) == 'number' then return cost == 0 end
  for i = 1, #cost do if not is_zero(cost[i]) then return false end end
  return true
end
";

/// Subtracts costs; and rounds down to whole permits, without losing one to rounding errors.
pub(super) const HELPERS: &str = "local function less(cost, other)
  if type(cost) == 'number' then return math.max(cost - other, 0) end
  local rest = {}
  for i = 1, #cost do rest[i] = less(cost[i], other[i]) end
  return rest
end
local function whole(permits)
  return math.min(math.floor(math.max(permits, 0) * (1 + 1e-14) + 1e-9), 4294967295)
end
";

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
           migrate(unpack(old))\n\
         end\n",
        from - PARAMETERS + 1,
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
