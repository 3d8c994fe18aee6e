//! `struct.pack` and `struct.unpack` of Redis's Lua, as far as the scripts use them: little-endian, without padding.

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value, Variadic};

/// One item of a format.
#[derive(Clone, Copy)]
enum Item {
    /// An unsigned integer of this many bytes.
    Unsigned(usize),
    Double,
    /// Bytes; with a length of zero, all that are left.
    Bytes(usize),
}

fn items(format: &[u8]) -> Result<Vec<Item>> {
    let mut rest = format;
    let mut items = Vec::new();
    while let [letter, after @ ..] = rest {
        let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, after) = after.split_at(digits);
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        items.push(match (letter, number) {
            (b'I', size) => Item::Unsigned(size.unwrap_or(4)),
            (b'B', None) => Item::Unsigned(1),
            (b'd', None) => Item::Double,
            (b'c', size) => Item::Bytes(size.unwrap_or(1)),
            (b'<', None) => {
                rest = after;
                continue;
            }
            _ => return Err(Error::runtime(format!("no item of a format: {}", *letter as char))),
        });
        rest = after;
    }
    Ok(items)
}

pub(crate) fn number(value: &Value) -> Result<f64> {
    match value {
        Value::Integer(number) => Ok(*number as f64),
        Value::Number(number) => Ok(*number),
        other => Err(Error::runtime(format!("no number: {other:?}"))),
    }
}

fn pack(lua: &Lua, (format, values): (LuaString, Variadic<Value>)) -> Result<LuaString> {
    let mut bytes = Vec::new();
    let items = items(&format.as_bytes())?;
    if items.len() > values.len() {
        return Err(Error::runtime("as many values as items"));
    }
    for (item, value) in items.into_iter().zip(values.iter()) {
        match item {
            Item::Unsigned(size) => {
                // Towards zero, and a negative number in the complement of two.
                let number = number(value)?;
                let number = if number < 0.0 { number as i64 as u64 } else { number as u64 };
                let mut wide = number.to_le_bytes().to_vec();
                wide.resize(size, 0);
                bytes.extend(wide);
            }
            Item::Double => bytes.extend(number(value)?.to_le_bytes()),
            Item::Bytes(size) => {
                let text = value.as_string().ok_or_else(|| Error::runtime("no string"))?;
                let text = text.as_bytes();
                let size = if size == 0 { text.len() } else { size };
                let text = text.get(..size).ok_or_else(|| Error::runtime("string too short"))?;
                bytes.extend(text);
            }
        }
    }
    lua.create_string(bytes)
}

/// The values, and where the next one begins, counted from one.
fn unpack(
    lua: &Lua,
    (format, bytes, at): (LuaString, LuaString, Option<f64>),
) -> Result<MultiValue> {
    let bytes = bytes.as_bytes();
    let mut at = at.map_or(0, |at| at as usize - 1);
    let mut values = Vec::new();
    for item in items(&format.as_bytes())? {
        let size = match item {
            Item::Unsigned(size) | Item::Bytes(size) => size,
            Item::Double => 8,
        };
        let part =
            bytes.get(at..at + size).ok_or_else(|| Error::runtime("data string too short"))?;
        at += size;
        values.push(match item {
            Item::Unsigned(_) => {
                let number = part.iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
                Value::Number(number as f64)
            }
            Item::Double => Value::Number(f64::from_le_bytes(part.try_into().expect("eight"))),
            Item::Bytes(_) => Value::String(lua.create_string(part)?),
        });
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(MultiValue::from_vec(values))
}

pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.set("pack", lua.create_function(pack)?)?;
    library.set("unpack", lua.create_function(unpack)?)?;
    Ok(library)
}
