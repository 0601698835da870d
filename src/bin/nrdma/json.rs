//! JSON, as far as the tool writes it.
use std::fmt::Write;

/// A value that is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Integer(u64),
    Text(String),
    List(Vec<Json>),
    /// In the order given.
    Object(Vec<(&'static str, Json)>),
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}
impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}
impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Json {
    /// The document, indented by two spaces, with a line's end.
    pub(crate) fn document(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, 0);
        text.push('\n');
        text
    }

    fn write(&self, to: &mut String, depth: usize) {
        // Writing to a string cannot fail.
        let _ = match self {
            Self::Null => write!(to, "null"),
            Self::Integer(value) => write!(to, "{value}"),
            Self::Text(text) => {
                quote(to, text);
                Ok(())
            }
            Self::List(items) => {
                let items = items.iter().map(|item| (None, item));
                block(to, depth, '[', ']', items);
                Ok(())
            }
            Self::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (Some(*name), value));
                block(to, depth, '{', '}', fields);
                Ok(())
            }
        };
    }
}

fn block<'a>(
    to: &mut String,
    depth: usize,
    open: char,
    close: char,
    items: impl Iterator<Item = (Option<&'static str>, &'a Json)>,
) {
    to.push(open);
    let mut empty = true;
    for (name, value) in items {
        to.push_str(if empty { "\n" } else { ",\n" });
        empty = false;
        to.push_str(&"  ".repeat(depth + 1));
        if let Some(name) = name {
            quote(to, name);
            to.push_str(": ");
        }
        value.write(to, depth + 1);
    }
    if !empty {
        to.push('\n');
        to.push_str(&"  ".repeat(depth));
    }
    to.push(close);
}

fn quote(to: &mut String, text: &str) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => to.extend(['\\', c]),
            '\n' => to.push_str("\\n"),
            c if c < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(to, "\\u{:04x}", u32::from(c));
            }
            c => to.push(c),
        }
    }
    to.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value() {
        let value = Json::Object(vec![
            ("a", Json::List(vec![1.into(), Json::Null])),
            ("b", "x\"\\\n\u{1}".into()),
            ("c", Json::List(Vec::new())),
        ]);
        let expected = "{\n  \"a\": [\n    1,\n    null\n  ],\n  \
                        \"b\": \"x\\\"\\\\\\n\\u0001\",\n  \"c\": []\n}\n";
        assert_eq!(value.document(), expected);
    }
}
