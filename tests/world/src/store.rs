//! One Redis: the scripts in Lua 5.1, as Redis runs them, over a model of the commands that they use.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mlua::{Error, Function, Lua, LuaString, Result, Table, Value as LuaValue, Variadic};
use redis::Value;
use tollgate::redis::Request;

use crate::structs;

/// A value, and the millisecond after which it is gone.
type Entry = (Vec<u8>, Option<u64>);

/// What the server remembers.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Memory {
    keys: BTreeMap<Vec<u8>, Entry>,
}

impl Memory {
    /// As if all keys had been evicted.
    pub(crate) fn lose(&mut self) {
        self.keys.clear();
    }

    /// The millisecond after which a key is gone; zero if it is not there, or stays.
    pub(crate) fn dies(&self, key: &str) -> u64 {
        self.keys.get(key.as_bytes()).and_then(|(_, dies)| *dies).unwrap_or_default()
    }

    pub(crate) fn expire(&mut self, now: Duration) {
        let now = now.as_millis();
        self.keys.retain(|_, (_, dies)| dies.is_none_or(|dies| now <= u128::from(dies)));
    }
}

/// What a script works on: the memory, at one time.
#[derive(Default)]
struct Turn {
    memory: Memory,
    now: Duration,
}

pub(crate) struct Redis {
    lua: Lua,
    turn: Arc<Mutex<Turn>>,
    /// By digest.
    scripts: Mutex<HashMap<String, Function>>,
}

impl Redis {
    pub(crate) fn new() -> Self {
        let (lua, turn) = (Lua::new(), Arc::<Mutex<Turn>>::default());
        let run = || -> Result<()> {
            let turn = Arc::clone(&turn);
            let library = lua.create_table()?;
            let call = move |lua: &Lua, arguments: Variadic<LuaValue>| {
                command(lua, &mut lock(&turn), &arguments)
            };
            library.set("call", lua.create_function(call)?)?;
            lua.globals().set("redis", library)?;
            lua.globals().set("struct", structs::library(&lua)?)
        };
        run().expect("Lua is well");
        Self { lua, turn, scripts: Mutex::default() }
    }

    /// Runs the script of a request, which is one step for all others.
    pub(crate) fn run(&self, memory: &mut Memory, now: Duration, request: &Request) -> Value {
        let script = (request.script.digest(), request.script.text());
        self.evaluate(memory, now, script, (&request.key, &request.arguments))
    }

    /// The same for any script, by its digest or another name, and its text.
    pub(crate) fn evaluate(
        &self,
        memory: &mut Memory,
        now: Duration,
        script: (&str, &str),
        (key, arguments): (&str, &[Vec<u8>]),
    ) -> Value {
        memory.expire(now);
        *lock(&self.turn) = Turn { memory: std::mem::take(memory), now };
        let value = self.call(script, key, arguments);
        *memory = std::mem::take(&mut lock(&self.turn).memory);
        value.unwrap_or_else(|error| panic!("a mistake: {error}"))
    }

    fn call(
        &self,
        (digest, text): (&str, &str),
        key: &str,
        arguments: &[Vec<u8>],
    ) -> Result<Value> {
        let list = |items: &mut dyn Iterator<Item = &[u8]>| -> Result<Table> {
            let strings = items.map(|item| self.lua.create_string(item));
            self.lua.create_sequence_from(strings.collect::<Result<Vec<_>>>()?)
        };
        let globals = self.lua.globals();
        globals.set("KEYS", list(&mut [key.as_bytes()].into_iter())?)?;
        globals.set("ARGV", list(&mut arguments.iter().map(Vec::as_slice))?)?;
        let mut scripts = lock(&self.scripts);
        let script = match scripts.get(digest) {
            Some(script) => script.clone(),
            None => {
                let script = self.lua.load(text).into_function()?;
                scripts.insert(digest.to_owned(), script.clone());
                script
            }
        };
        drop(scripts);
        reply(&script.call(())?)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no script has panicked")
}

/// What a script answers: a table ends at its first `nil`, and a number loses what is behind its point.
fn reply(value: &LuaValue) -> Result<Value> {
    Ok(match value {
        LuaValue::Nil | LuaValue::Boolean(false) => Value::Nil,
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::Integer(_) | LuaValue::Number(_) => Value::Int(structs::number(value)? as i64),
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Table(table) => {
            let items = table.sequence_values::<LuaValue>().map(|item| reply(&item?));
            Value::Array(items.collect::<Result<_>>()?)
        }
        other => return Err(Error::runtime(format!("no answer: {other:?}"))),
    })
}

/// The commands of the scripts.
fn command(lua: &Lua, turn: &mut Turn, arguments: &[LuaValue]) -> Result<LuaValue> {
    let text = |argument: &LuaValue| match argument {
        LuaValue::String(text) => Ok(text.as_bytes().to_vec()),
        number => Ok(format!("{}", structs::number(number)?).into_bytes()),
    };
    let arguments = arguments.iter().map(text).collect::<Result<Vec<_>>>()?;
    let whole = |bytes: &[u8]| -> Result<u64> {
        let text = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        text.ok_or_else(|| Error::runtime("ERR value is not an integer or out of range"))
    };
    let string = |bytes: &[u8]| lua.create_string(bytes).map(LuaValue::String);
    let Turn { memory: Memory { keys }, now } = turn;
    match arguments.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] {
        [b"TIME"] => {
            let parts = [now.as_secs().to_string(), now.subsec_micros().to_string()];
            let parts = parts.iter().map(|part| lua.create_string(part));
            let parts = parts.collect::<Result<Vec<LuaString>>>()?;
            Ok(LuaValue::Table(lua.create_sequence_from(parts)?))
        }
        [b"GET", key] => match keys.get(key) {
            Some((value, _)) => string(value),
            None => Ok(LuaValue::Boolean(false)),
        },
        [b"SET", key, value, b"PX", lives] => {
            let dies = u64::try_from(now.as_millis()).expect("a time") + whole(lives)?;
            keys.insert(key.to_vec(), (value.to_vec(), Some(dies)));
            string(b"OK")
        }
        [b"SET", key, value, b"KEEPTTL"] => {
            keys.entry(key.to_vec()).or_default().0 = value.to_vec();
            string(b"OK")
        }
        [b"SETRANGE", key, at, value] => {
            let at = whole(at)? as usize;
            if !value.is_empty() {
                let (bytes, _) = keys.entry(key.to_vec()).or_default();
                bytes.resize(bytes.len().max(at + value.len()), 0);
                bytes[at..at + value.len()].copy_from_slice(value);
            }
            let length = keys.get(key).map_or(0, |(bytes, _)| bytes.len());
            Ok(LuaValue::Number(length as f64))
        }
        [b"DEL", key] => Ok(LuaValue::Number(f64::from(u8::from(keys.remove(key).is_some())))),
        _ => Err(Error::runtime(format!("ERR unknown command {arguments:?}"))),
    }
}
