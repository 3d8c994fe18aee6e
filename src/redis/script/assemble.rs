//! Assembling a script: a policy's file between the two halves of the driver.
//!
//! Lines that begin with `--@` are for the assembler: code for some scripts only, and the places where
//! the policy and the write go. `$name(..)` is a function that is pasted where that is possible.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use super::chunk::{
    self, ChunkHeader, HELPERS, IS_ZERO, LIMITS, PARAMETERS, become_function, size,
    snapshot_functions,
};
use super::inline::Functions;
use super::parts::{Lua, Scripts};
use super::policies::Scripted;
use crate::redis::connection::Script;

const DRIVER: &str = include_str!("lua/driver.lua");
const SAVE: &str = include_str!("lua/save.lua");
const LOWS: &str = include_str!("lua/lows.lua");
const TAKE: &str = include_str!("lua/take.lua");
const CHANGE: &str = include_str!("lua/change.lua");

impl Scripts {
    /// The scripts that all limiters with such a policy share, as they take a while to put together.
    pub(crate) fn of<P: Scripted>() -> Arc<Self> {
        static ALL: Mutex<BTreeMap<TypeId, Arc<Scripts>>> = Mutex::new(BTreeMap::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(TypeId::of::<P>()).or_insert_with(|| Arc::new(P::lua().scripts())))
    }
}

impl Lua {
    /// The assembled script that takes permits, as it is sent. `docs/scripts` has those of all policies.
    ///
    /// ```
    /// use tollgate::TokenBucket;
    /// use tollgate::redis::Scripted;
    ///
    /// let script = TokenBucket::lua().script();
    /// assert!(script.contains("redis.call('TIME')"));
    /// ```
    #[must_use]
    pub fn script(&self) -> String {
        self.assemble(false)
    }

    pub(crate) fn scripts(&self) -> Scripts {
        Scripts {
            take: Arc::new(Script::new(self.script())),
            change: Arc::new(Script::new(self.assemble(true))),
            parts: !self.parts.is_empty(),
            punish: self.has("refused"),
            room: self.has("room"),
            held: self.held(&mut 0),
            kind: self.kind(),
            alone: self.parts.is_empty().then(|| self.header()),
        }
    }

    /// The script that takes, or the one that changes.
    fn assemble(&self, change: bool) -> String {
        let header = self.header();
        let one_number = self.parts.is_empty();
        let alone =
            !change && one_number && !["room", "refused", "held"].iter().any(|name| self.has(name));
        let mut switches = vec![
            ("take", !change),
            ("change", change),
            ("tail", header.tail),
            ("plain", !header.tail),
            ("lows", header.lows),
            ("exact", !header.tail && !header.lows),
            ("room", self.has("room")),
            ("held", self.has("held")),
            ("punish", self.has("refused")),
            ("alone", alone),
            ("parts", !one_number),
        ];
        let policy = self.policy(&header, change);
        let functions = if alone { Functions::of(&policy) } else { None };
        switches.push(("pasted", functions.is_some()));
        let save = switched(SAVE, &switches);
        // Pasted functions are defined only after the code for a single call.
        let (before, early, late) = match &functions {
            Some(functions) => {
                let late = format!("{}{save}", functions.text);
                (functions.others.as_str(), String::new(), late)
            }
            None => (policy.as_str(), save.clone(), String::new()),
        };
        let body = switched(if change { CHANGE } else { TAKE }, &switches);
        let script = switched(DRIVER, &switches) + &body;
        let script = match &functions {
            Some(functions) => functions.with(&save).paste(&script),
            None => script,
        };
        let next = if one_number {
            "struct.unpack('<I4I4ddB', source, at)"
        } else {
            "next_call(source, at)"
        };
        // The sequence, of which policies with a rate need only the lower bits; the deadline; the time.
        let head = if one_number && !self.has("numbers") { "I4I4I7" } else { "I7I4I7" };
        let fields = header.fields.join(", ");
        let comma = if fields.is_empty() { "" } else { ", " };
        // The parameters as they are in the key, of composed policies the bytes of the request.
        let start = format!("<I4I4{head}{}", header.format);
        let state = 8 + size(head) + size(&header.format);
        let lows = size(chunk::LOWS_FORMAT);
        let (layout, own, own_size) = if one_number {
            let (short, long) = (header.short, "d".repeat(header.params.len()));
            let layout = format!("stamp % 4 > 1 and '{start}{short}' or '{start}{long}'");
            (layout, header.params.join(", "), size(header.short))
        } else {
            let size = 8 * self.params();
            let own = format!("params:sub({PARAMETERS}, {})", PARAMETERS - 1 + size);
            (format!("'{start}c0'"), own, size)
        };
        let script = script
            .replace("--@start\n", &self.start(&header, change))
            .replace("--@policy\n", before)
            .replace("--@early\n", &early)
            .replace("--@late\n", &late)
            .replace("$SIZE", &(state + own_size).to_string())
            .replace("$SHORT_WITH_LOWS", &(state + lows + own_size).to_string())
            .replace("$LONG_EXTENDED", &(state + 8 * self.params() + 32).to_string())
            .replace("$NUMBERS", &chunk::read_numbers(state))
            .replace("$LOWS_FORMAT", chunk::LOWS_FORMAT)
            .replace("$LOWS", chunk::LOWS)
            .replace("$STATE", &state.to_string())
            .replace("$HEAD", head)
            .replace("$LENGTH", &(8 * self.params()).to_string())
            .replace("$SHORT", &size(header.short).to_string())
            .replace("$WIDEN", &header.widen("theirs"))
            .replace("$LAYOUT", &layout)
            .replace("$OWN", &own)
            .replace("$DOUBLES", &"d".repeat(self.params()))
            .replace("$FORMAT", &header.format)
            .replace(", $FIELDS", &format!("{comma}{fields}"))
            .replace("$NEXT", next);
        Functions::call(&script)
    }

    /// The policy's functions, and those generated from its header.
    fn policy(&self, header: &ChunkHeader, change: bool) -> String {
        let mut policy = String::new();
        if change {
            policy += &self.costs();
            policy += HELPERS;
        }
        if !self.parts.is_empty() {
            policy += IS_ZERO;
        }
        policy += &self.chunk(header, change, &mut 1, PARAMETERS);
        if change && self.parts.is_empty() {
            policy += LIMITS;
            policy += &become_function(header, PARAMETERS);
        }
        if !change && self.has("refused") {
            policy += &snapshot_functions(header);
        }
        policy
    }

    /// Reads the first argument, with the first call behind the parameters if that is there.
    fn start(&self, header: &ChunkHeader, change: bool) -> String {
        let params: String = header.params.iter().map(|param| format!(", {param}")).collect();
        let fields = format!("terms, lasting, request{params}");
        let format = format!("<ddI4{}", "d".repeat(header.params.len()));
        if change {
            return format!("local {fields} = struct.unpack('{format}', params)\n");
        }
        if self.parts.is_empty() {
            return format!(
                "local {fields}, cost, count, limit, patience, fresh, at = \
                 struct.unpack('{format}I4I4ddB', params)\n"
            );
        }
        let numbers = self.numbers();
        let rest: Vec<_> = (1..=5).map(|i| format!("t[{}]", numbers + i)).collect();
        format!(
            "local {fields} = struct.unpack('{format}', params)\n\
             local function next_call(bytes, at)\n  \
               local t = {{struct.unpack('<{}I4ddB', bytes, at)}}\n  \
               return {}, {}\n\
             end\n\
             local cost, count, limit, patience, fresh, at = next_call(params, {})\n",
            "I4".repeat(numbers),
            self.cost(&mut 1),
            rest.join(", "),
            PARAMETERS + 8 * self.params(),
        )
    }

    /// The text of a policy's file, with its fields declared. `held` counts the parts with places in flight,
    /// `from` is where the parameters begin.
    fn chunk(&self, header: &ChunkHeader, change: bool, held: &mut usize, from: usize) -> String {
        let mut text = String::new();
        if !header.fields.is_empty() {
            let _ = writeln!(text, "local {}", header.fields.join(", "));
        }
        if header.also.contains(&"held") {
            let _ = writeln!(text, "local held_at = {}", 9 + 8 * (*held - 1));
            *held += 1;
        }
        let lows = if header.lows { LOWS } else { "" };
        for line in lines(lows, change).chain(lines(self.chunk, change)) {
            let code = line.trim_start();
            if code == "--@parts" {
                let mut from = from + 8 * header.params.len();
                for part in &self.parts {
                    text += &part.part(change, held, from);
                    from += 8 * part.params();
                }
                continue;
            }
            let line = match code.strip_prefix("--@").and_then(|code| code.split_once(' ')) {
                Some(("room", code)) if self.has("room") => code,
                Some(("punish", code)) if self.has("refused") => code,
                Some(("part", code)) if header.is_part => code,
                _ if code.starts_with("--") || code.is_empty() => continue,
                _ => line,
            };
            text += &line.replace("$SAME", if self.same { "true" } else { "false" });
            text.push('\n');
        }
        if header.is_part {
            return text.replace("$LAST", "top").replace("$NUMBERS", "");
        }
        text.replace("$LAST", "sequence")
    }

    /// The same for a part of a composed policy: an expression whose value is a table of its functions.
    fn part(&self, change: bool, held: &mut usize, from: usize) -> String {
        let header = self.header().into_part();
        let mut text = String::from("(function()\n");
        if !header.params.is_empty() {
            let _ = writeln!(
                text,
                "local {} = struct.unpack('<{}', params, {from})",
                header.params.join(", "),
                "d".repeat(header.params.len()),
            );
        }
        text += &self.chunk(&header, change, held, from);
        if change && self.parts.is_empty() {
            text += LIMITS;
            text += &become_function(&header, from);
        }
        let mut functions = vec!["begin", "resume", "ready", "charge", "forget"];
        functions.extend(["room", "refused"].iter().filter(|&&name| self.has(name)));
        if change {
            functions.extend([
                "refund",
                "halt",
                "unhalt",
                "available",
                "limit",
                "limits",
                "become",
            ]);
        }
        let _ = write!(
            text,
            "local function load(bytes, at, last) {} end\n\
             local function save() return {} end\n\
             return {{load = load, save = save",
            header.unpack(),
            header.pack(),
        );
        for name in functions {
            let _ = write!(text, ", {name} = {name}");
        }
        text += "}\nend)(),\n";
        text
    }

    /// Reading and writing costs of any shape.
    fn costs(&self) -> String {
        let numbers = self.numbers();
        let zeros: Vec<_> = (0..numbers).map(|_| "0").collect();
        let shape = self.cost(&mut 1);
        format!(
            "local function shape(t) return {shape} end\n\
             local function nothing() return shape({{{zeros}}}) end\n\
             local function read_cost(bytes, at)\n  \
               local t = {{struct.unpack('<{format}', bytes, at)}}\n  \
               return shape(t), t[{next}]\n\
             end\n\
             local function write_cost(values, cost)\n  \
               if type(cost) == 'number' then values[#values + 1] = cost return end\n  \
               for i = 1, #cost do write_cost(values, cost[i]) end\n\
             end\n",
            zeros = zeros.join(", "),
            format = "I4".repeat(numbers),
            next = numbers + 1,
        )
        .replace("local function write_cost", "local write_cost\nfunction write_cost")
    }
}

/// The lines of a policy's file that its script needs.
fn lines(chunk: &'static str, change: bool) -> impl Iterator<Item = &'static str> {
    chunk.lines().take_while(move |line| change || *line != "--@ change")
}

/// The code of a template, without comments and lines for other scripts.
fn switched(template: &str, switches: &[(&str, bool)]) -> String {
    let mut code = String::new();
    for line in template.lines() {
        let trimmed = line.trim_start();
        let (indent, line) = match trimmed.strip_prefix("--@") {
            Some(switched) => match switched.split_once(' ') {
                Some((name, code)) if switches.contains(&(name, true)) => {
                    (&line[..line.len() - trimmed.len()], code)
                }
                Some(_) => continue,
                None => ("", trimmed),
            },
            None if trimmed.starts_with("--") || trimmed.is_empty() => continue,
            None => ("", line),
        };
        code += indent;
        code += line;
        code.push('\n');
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InFlight, LockOut, SlidingWindowLog, TokenBucket};

    /// A server parses a script before it runs it for the first time, and keeps it.
    #[test]
    fn a_script_has_no_comments() {
        for lua in [
            TokenBucket::lua(),
            LockOut::<SlidingWindowLog>::lua(),
            <(TokenBucket, InFlight)>::lua(),
        ] {
            for change in [false, true] {
                let text = lua.assemble(change);
                for line in text.lines() {
                    assert!(!line.trim_start().starts_with("--"), "{line}\n{text}");
                }
            }
        }
    }
}
