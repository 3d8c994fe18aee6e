//! Pasting the bodies of short functions where they would be called.
//!
//! A function can be pasted if it is one block without an early `return`; it may end with one `return`. Its
//! arguments become local variables of the block.

use std::collections::BTreeMap;

/// Functions that can be pasted.
#[derive(Clone, Debug, Default)]
pub(super) struct Functions {
    bodies: BTreeMap<String, Body>,
    /// Their text, for scripts that also call them.
    pub(super) text: String,
    /// The rest of the text.
    pub(super) others: String,
}

#[derive(Clone, Debug)]
struct Body {
    arguments: String,
    block: String,
    /// The expression that it returns, if any.
    value: Option<String>,
}

impl Functions {
    /// The functions in `text`, if all of them can be pasted.
    pub(super) fn of(text: &str) -> Option<Self> {
        let mut functions = Self::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let function = line.strip_prefix("local function ").and_then(|line| {
                let (name, arguments) = line.split_once('(')?;
                Some((name, arguments.strip_suffix(')')?))
            });
            let Some((name, arguments)) = function else {
                functions.others += line;
                functions.others.push('\n');
                continue;
            };
            let body: Vec<_> = lines.by_ref().take_while(|line| *line != "end").collect();
            functions.text += &format!("{line}\n{}\nend\n", body.join("\n"));
            functions.bodies.insert(name.to_owned(), Body::of(arguments, &body)?);
        }
        Some(functions)
    }

    /// Adds the function, which returns nothing, that `text` defines.
    pub(super) fn with(&self, text: &str) -> Self {
        let mut all = self.clone();
        all.bodies.extend(Self::of(text).unwrap_or_default().bodies);
        all
    }

    /// Ordinary calls in the place of all that are not pasted.
    pub(super) fn call(code: &str) -> String {
        code.replace('$', "")
    }

    /// `code` with the bodies in the place of lines such as `$charge(at, n)` and `after = $ready(n)`.
    pub(super) fn paste(&self, code: &str) -> String {
        let mut pasted = String::new();
        for line in code.lines() {
            pasted += &self.paste_line(line).unwrap_or_else(|| format!("{line}\n"));
        }
        pasted
    }

    fn paste_line(&self, line: &str) -> Option<String> {
        let (target, call) = line.split_once('$')?;
        let (name, arguments) = call.strip_suffix(')')?.split_once('(')?;
        let Body { arguments: names, block, value } = self.bodies.get(name)?;
        let locals = if names.is_empty() || names == "_" || arguments.is_empty() {
            String::new()
        } else {
            format!("local {names} = {arguments}\n")
        };
        let value = value.as_ref().map(|value| format!("{target}{value}\n")).unwrap_or_default();
        let block = self.paste(block);
        Some(format!("do\n{locals}{block}{value}end\n"))
    }
}

impl Body {
    fn of(arguments: &str, lines: &[&str]) -> Option<Self> {
        let (value, block) = match lines.split_last() {
            Some((last, block)) if last.starts_with("  return ") => {
                (last.strip_prefix("  return ").map(str::to_owned), block)
            }
            _ => (None, lines),
        };
        let returns = block.iter().any(|line| line.split_whitespace().any(|word| word == "return"));
        let block: String = block.iter().flat_map(|line| [line, "\n"]).collect();
        (!returns).then(|| Self { arguments: arguments.to_owned(), block, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "local x\nlocal function add(n)\n  x = x + n\nend\n\
                        local function twice()\n  return 2 * x\nend\n";

    #[test]
    fn bodies_stand_where_they_would_be_called() {
        let functions = Functions::of(TEXT).expect("both are short");
        assert_eq!(functions.others, "local x\n");
        let pasted = functions.paste("  $add(1 + 2)\ny = $twice()\nreturn y");
        assert_eq!(pasted, "do\nlocal n = 1 + 2\n  x = x + n\nend\ndo\ny = 2 * x\nend\nreturn y\n");
    }

    #[test]
    fn an_argument_that_is_not_used_has_no_variable() {
        let functions = Functions::of("local function forget(_)\n  x = 0\nend\n").expect("short");
        assert_eq!(functions.paste("$forget(1 + 2)"), "do\n  x = 0\nend\n");
    }

    #[test]
    fn a_function_that_returns_early_is_not_pasted() {
        let early = TEXT.replace("  x = x + n", "  if n == 0 then return end");
        assert!(Functions::of(&early).is_none());
    }
}
