//! The scripts: a policy's `.lua` file between the two halves of the driver, put together once for each
//! limiter.
//!
//! A policy's file is a chunk that defines `begin`, `resume`, `ready`, `charge` and `forget`, and below
//! the line `--@ change` what only `change.lua` needs. Its first lines say which parameters it takes,
//! which fields it keeps and whether these have a tail of any length, which it then reads with `read`
//! and writes with `write`. Alone, its text stands in the script as it is, so that nothing is called
//! that need not be, and what is below `--@ charge` only behind what a refusal needs; as a part of
//! several it is wrapped in a function and answers through a table.

use super::chunk::{HELPERS, Header, IS_ZERO, become_function, snapshot_functions};
use std::fmt::Write as _;
use std::sync::Arc;

/// What a script is made of: a policy's file, and its parts if it has any.
#[derive(Clone, Debug)]
pub struct Lua {
    name: &'static str,
    chunk: &'static str,
    parts: Vec<Lua>,
    /// Whether the parts share one cost.
    same: bool,
}

/// A script as it is sent: its text, and the digest by which the server knows it.
#[derive(Debug)]
pub struct Script {
    text: String,
    digest: String,
}

impl Script {
    fn new(text: String) -> Self {
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { text, digest }
    }

    /// What `EVAL` takes.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What `EVALSHA` takes.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// Both scripts of a policy.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) take: Arc<Script>,
    pub(super) change: Arc<Script>,
    /// Whether each answer is followed by the part that it is due to.
    pub(super) parts: bool,
    /// Whether newcomers may find no room.
    pub(super) room: bool,
    /// For each part with places in flight, which number of the cost counts there.
    pub(super) held: Vec<usize>,
    pub(super) kind: String,
}

const DRIVER: &str = include_str!("driver.lua");
const SAVE: &str = include_str!("save.lua");
const TAKE: &str = include_str!("take.lua");
const CHANGE: &str = include_str!("change.lua");

/// Where the parameters begin in the first argument, counted from one.
pub(super) const PARAMETERS: usize = 10;

/// Where the text of a policy is cut in two: a refusal needs only the first part.
const CUT: &str = "-- charge\n";

impl Lua {
    pub(super) fn leaf(name: &'static str, chunk: &'static str) -> Self {
        Self::of(name, chunk, Vec::new(), false)
    }

    pub(super) fn of(
        name: &'static str,
        chunk: &'static str,
        parts: Vec<Self>,
        same: bool,
    ) -> Self {
        Self { name, chunk, parts, same }
    }

    /// Tells kinds of policies apart, whatever their parameters: `compose(fixed_window in_flight)`.
    fn kind(&self) -> String {
        let parts: Vec<_> = self.parts.iter().map(Self::kind).collect();
        let same = if self.same { "=" } else { "" };
        format!("{}{same}({})", self.name, parts.join(" "))
    }

    fn header(&self) -> Header {
        Header::of(self.chunk)
    }

    fn any(&self, is: &impl Fn(&Header) -> bool) -> bool {
        is(&self.header()) || self.parts.iter().any(|part| part.any(is))
    }

    fn has(&self, function: &str) -> bool {
        self.any(&|header| header.also.contains(&function))
    }

    /// How many numbers the parameters are.
    fn params(&self) -> usize {
        self.header().params.len() + self.parts.iter().map(Self::params).sum::<usize>()
    }

    /// How many numbers a cost is.
    fn numbers(&self) -> usize {
        match self.parts.as_slice() {
            [] => 1,
            [first, ..] if self.same => first.numbers(),
            parts => parts.iter().map(Self::numbers).sum(),
        }
    }

    fn held(&self, from: &mut usize) -> Vec<usize> {
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
    fn cost(&self, from: &mut usize) -> String {
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

    pub(super) fn scripts(&self) -> Scripts {
        Scripts {
            take: Arc::new(Script::new(self.script(false))),
            change: Arc::new(Script::new(self.script(true))),
            parts: !self.parts.is_empty(),
            room: self.has("room"),
            held: self.held(&mut 0),
            kind: self.kind(),
        }
    }

    fn script(&self, change: bool) -> String {
        let header = self.header();
        let mut policy = String::new();
        if change {
            policy += &self.costs();
            policy += HELPERS;
        }
        if !self.parts.is_empty() {
            policy += IS_ZERO;
        }
        policy += &self.chunk(change, &mut 1, PARAMETERS);
        if change && self.parts.is_empty() {
            policy += &become_function(&header, PARAMETERS);
        }
        let fields = header.fields.join(", ");
        let next = if self.parts.is_empty() && !change {
            "struct.unpack('<I4I4ddB', todo, at)".to_owned()
        } else {
            "next_call(at)".to_owned()
        };
        if !change && !self.parts.is_empty() {
            let numbers = self.numbers();
            let _ = writeln!(
                policy,
                "local function next_call(at)\n  local t = {{struct.unpack('<{}I4ddB', todo, at)}}\n  \
                 return {}, {}\nend",
                "I4".repeat(numbers),
                self.cost(&mut 1),
                (1..=5).map(|i| format!("t[{}]", numbers + i)).collect::<Vec<_>>().join(", "),
            );
        }
        let alone = !change
            && self.parts.is_empty()
            && !["room", "refused", "held"].iter().any(|name| self.has(name));
        if !change && self.has("refused") {
            policy += &snapshot_functions(&header);
        }
        let switches = [
            ("take", !change),
            ("change", change),
            ("tail", header.tail),
            ("room", self.has("room")),
            ("punish", self.has("refused")),
            ("alone", alone),
            ("parts", !self.parts.is_empty()),
        ];
        let integers = header.format.matches("I4").count();
        let size = 20 + 4 * integers + 8 * (header.format.len() - 2 * integers);
        let body = if change { CHANGE } else { TAKE };
        let (policy, rest) = match policy.split_once(CUT) {
            Some((first, rest)) if alone => (first.to_owned(), rest),
            _ => (policy.replace(CUT, ""), ""),
        };
        let (body, behind) = body.split_once("--@save\n").unwrap_or((body, ""));
        let mut script = String::new();
        for line in [DRIVER, body, SAVE, behind].into_iter().flat_map(str::lines) {
            let code = line.trim_start();
            let Some(code) = code.strip_prefix("--@") else {
                if !code.starts_with("--") && !code.is_empty() {
                    script += line;
                    script.push('\n');
                }
                continue;
            };
            match code {
                "policy" => script += &policy,
                "rest" => script += rest,
                _ => {}
            }
            let (name, code) = code.split_once(' ').unwrap_or((code, ""));
            if switches.contains(&(name, true)) {
                script += code;
                script.push('\n');
            }
        }
        let comma = if fields.is_empty() { "" } else { ", " };
        script
            .replace("$SIZE", &size.to_string())
            .replace("$FORMAT", header.format)
            .replace(", $FIELDS", &format!("{comma}{fields}"))
            .replace("$NEXT", &next)
    }

    /// The text of a policy's file, with its parameters and fields declared. `held` counts the parts
    /// with places in flight, `from` says where the parameters begin.
    fn chunk(&self, change: bool, held: &mut usize, from: usize) -> String {
        let header = self.header();
        let mut text = String::new();
        if !header.params.is_empty() {
            let _ = writeln!(
                text,
                "local {} = struct.unpack('<{}', params, {from})",
                header.params.join(", "),
                "d".repeat(header.params.len()),
            );
        }
        if !header.fields.is_empty() {
            let _ = writeln!(text, "local {}", header.fields.join(", "));
        }
        if header.also.contains(&"held") {
            let _ = writeln!(text, "local held_at = {}", 9 + 8 * (*held - 1));
            *held += 1;
        }
        for line in self.chunk.lines() {
            let code = line.trim_start();
            if code == "--@ change" && !change {
                break;
            }
            if code == "--@parts" {
                let mut from = from + 8 * header.params.len();
                for part in &self.parts {
                    text += &part.part(change, held, from);
                    from += 8 * part.params();
                }
                continue;
            }
            if code == "--@ charge" {
                text += CUT;
                continue;
            }
            let line = match code.strip_prefix("--@").and_then(|code| code.split_once(' ')) {
                Some(("room", code)) if self.has("room") => code,
                Some(("punish", code)) if self.has("refused") => code,
                _ if code.starts_with("--") || code.is_empty() => continue,
                _ => line,
            };
            text += &line.replace("$SAME", if self.same { "true" } else { "false" });
            text.push('\n');
        }
        text
    }

    /// The same as one of several: an expression whose value is a table of its functions.
    fn part(&self, change: bool, held: &mut usize, from: usize) -> String {
        let header = self.header();
        let mut text = String::from("(function()\n");
        text += &self.chunk(change, held, from);
        if change && self.parts.is_empty() {
            text += &become_function(&header, from);
        }
        let mut functions = vec!["begin", "resume", "ready", "charge", "forget"];
        functions.extend(["room", "refused"].iter().filter(|&&name| self.has(name)));
        if change {
            functions.extend(["refund", "halt", "available", "limit", "become"]);
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
