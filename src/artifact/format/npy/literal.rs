//! Python literals, as far as headers of NumPy have them: dictionaries, tuples, lists, strings, numbers, True and False.
//! Nothing is evaluated.

/// Lists within lists that are followed.
const DEPTH: u32 = 64;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// Not negative.
    Number(u64),
    Truth(bool),
    None,
    Tuple(Vec<Value>),
    List(Vec<Value>),
}

/// The pairs of a dictionary whose keys are strings, in their order, each with its value's text; nothing may follow it.
pub fn dict(text: &str) -> Result<Vec<(String, Value, &str)>, String> {
    let mut parser = Parser { text, at: 0 };
    let mut pairs = Vec::new();
    parser.expect('{')?;
    while !parser.take('}') {
        let Value::Text(key) = parser.value(DEPTH)? else { return Err(parser.wrong("a key that is no string")) };
        parser.expect(':')?;
        parser.space();
        let begin = parser.at;
        let value = parser.value(DEPTH)?;
        pairs.push((key, value, &text[begin..parser.at]));
        if !parser.take(',') {
            parser.expect('}')?;
            break;
        }
    }
    parser.space();
    if parser.at < text.len() { Err(parser.wrong("something follows the dictionary")) } else { Ok(pairs) }
}

struct Parser<'a> {
    text: &'a str,
    /// Bytes passed, always whole characters.
    at: usize,
}

impl<'a> Parser<'a> {
    fn wrong(&self, problem: &str) -> String {
        format!("the header, {} bytes in: {problem}", self.at)
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|next| next.is_ascii_whitespace()) {
            self.next();
        }
    }

    /// Passes this sign, if it is next.
    fn take(&mut self, sign: char) -> bool {
        self.space();
        let found = self.peek() == Some(sign);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, sign: char) -> Result<(), String> {
        if self.take(sign) { Ok(()) } else { Err(self.wrong(&format!("no {sign:?} where one must be"))) }
    }

    fn value(&mut self, depth: u32) -> Result<Value, String> {
        if depth == 0 {
            return Err(self.wrong("nested too deep"));
        }
        self.space();
        match self.peek() {
            Some(quote @ ('\'' | '"')) => {
                self.next();
                self.string(quote).map(Value::Text)
            }
            Some('(') => {
                self.next();
                let (mut values, comma) = self.values(')', depth)?;
                // `(x)` is x.
                Ok(if values.len() == 1 && !comma { values.remove(0) } else { Value::Tuple(values) })
            }
            Some('[') => {
                self.next();
                Ok(Value::List(self.values(']', depth)?.0))
            }
            Some(digit) if digit.is_ascii_digit() => self.number(),
            Some(letter) if letter.is_ascii_alphabetic() => match self.run(|c| c.is_ascii_alphanumeric()) {
                "True" => Ok(Value::Truth(true)),
                "False" => Ok(Value::Truth(false)),
                "None" => Ok(Value::None),
                // A string's prefix, as Python 2 wrote some.
                "u" | "b" if matches!(self.peek(), Some('\'' | '"')) => {
                    let quote = self.next().unwrap_or('"');
                    self.string(quote).map(Value::Text)
                }
                _ => Err(self.wrong("a word that is none of a literal")),
            },
            _ => Err(self.wrong("no value where one must be")),
        }
    }

    /// Values up to a closing sign, and whether a comma stands before that.
    fn values(&mut self, close: char, depth: u32) -> Result<(Vec<Value>, bool), String> {
        let (mut values, mut comma) = (Vec::new(), false);
        while !self.take(close) {
            values.push(self.value(depth - 1)?);
            comma = self.take(',');
            if !comma {
                self.expect(close)?;
                break;
            }
        }
        Ok((values, comma))
    }

    fn run(&mut self, fits: fn(char) -> bool) -> &'a str {
        let begin = self.at;
        while self.peek().is_some_and(fits) {
            self.next();
        }
        &self.text[begin..self.at]
    }

    fn number(&mut self) -> Result<Value, String> {
        let number = self.run(|c| c.is_ascii_digit()).parse();
        // Python 2 wrote long numbers so.
        if self.peek() == Some('L') {
            self.next();
        }
        number.map(Value::Number).map_err(|_| self.wrong("a number past 64 bits"))
    }

    fn string(&mut self, quote: char) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some(next) if next == quote => return Ok(text),
                Some('\\') => match self.next() {
                    Some(next @ ('\\' | '\'' | '"')) => text.push(next),
                    // Names of fields only have others, and what they are makes no difference.
                    Some(next) => text.extend(['\\', next]),
                    None => return Err(self.wrong("a string without end")),
                },
                Some(next) => text.push(next),
                None => return Err(self.wrong("a string without end")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn literals_are_read() {
        let pairs =
            dict(r#" {'a': (1, 2L), "b": [('x\'y', u'<f4')], 'c': True, 'd': (), 'e': (3), 'f': (3,), } "#).unwrap();
        let number = Value::Number;
        let text = |text: &str| Value::Text(text.into());
        let expected = [
            ("a", Value::Tuple(vec![number(1), number(2)]), "(1, 2L)"),
            ("b", Value::List(vec![Value::Tuple(vec![text("x'y"), text("<f4")])]), r"[('x\'y', u'<f4')]"),
            ("c", Value::Truth(true), "True"),
            ("d", Value::Tuple(vec![]), "()"),
            ("e", number(3), "(3)"),
            ("f", Value::Tuple(vec![number(3)]), "(3,)"),
        ];
        assert_eq!(pairs, expected.map(|(key, value, text)| (key.to_owned(), value, text)));
    }

    #[test]
    fn what_is_no_literal_is_refused() {
        for text in [
            "",
            "{",
            "[]",
            "{'a'}",
            "{'a': }",
            "{a: 1}",
            "{1: 1}",
            "{'a': 1 'b': 2}",
            "{'a': x()}",
            "{'a': 'b",
            "{'a': 99999999999999999999}",
            "{'a': -1}",
            "{,}",
            "{'a': (,)}",
            "{} {}",
            "{'a': '\\",
        ] {
            assert!(dict(text).is_err(), "{text}");
        }
        assert!(dict(&format!("{{'a': {}", "(".repeat(1 << 20))).is_err());
    }
}
