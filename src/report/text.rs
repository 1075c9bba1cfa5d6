//! Text that came from the launch, made fit to be shown: nothing in it moves a cursor, turns writing round, or breaks
//! a line.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// One line of plain characters: control characters become escapes, as do those that reorder or hide text.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => plain.push_str("\\n"),
            '\r' => plain.push_str("\\r"),
            '\t' => plain.push_str("\\t"),
            c if acts_on_a_terminal(c) => plain.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => plain.push(c),
        }
    }
    plain
}

/// Whether a terminal, or a reader's eye, could be led astray by it.
fn acts_on_a_terminal(character: char) -> bool {
    character.is_control() || is_invisible(character)
}

/// Formatting characters: bidirectional controls, zero-width ones, line and paragraph separators; and what XML forbids.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
        | '\u{e0000}'..='\u{e007f}')
}

/// JSON in which what a terminal would act on is escaped. Outside of texts there is nothing of that kind but line ends.
pub fn json_for_terminals(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character == '\n' || !acts_on_a_terminal(character) {
            text.push(character);
        } else {
            character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        }
    }
    text
}

/// The columns that a text takes in a terminal: an East Asian wide character two, a combining one none.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// The text with as many spaces behind it as make it `width` columns.
pub fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// At most `width` columns: the middle gives way, as both ends of a name or a path tell more.
pub fn elide(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let wide = |character: char| character.width().unwrap_or(0);
    // Up to the first character that has no room; so a mark stays with what it is over.
    let (mut head, mut used) = (0, 0);
    for (at, character) in text.char_indices() {
        used += wide(character);
        if used > kept.div_ceil(2) {
            break;
        }
        head = at + character.len_utf8();
    }
    let (mut tail, mut used) = (text.len(), 0);
    for (at, character) in text.char_indices().rev() {
        used += wide(character);
        if used > kept / 2 {
            break;
        }
        // A mark whose bearer is cut away would stand over the ellipsis.
        if wide(character) > 0 {
            tail = at;
        }
    }
    format!("{}…{}", &text[..head], &text[tail..])
}

/// Breaks at spaces into lines of at most `width` columns; a longer word is elided.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = elide(word, width);
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(&word) <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_cursor_is_left() {
        assert_eq!(plain("a\u{1b}[31m\r\n\tb\u{202e}"), "a\\u{1b}[31m\\r\\n\\tb\\u{202e}");
        assert_eq!(plain("mödel 模型"), "mödel 模型");
    }

    #[test]
    fn the_middle_gives_way() {
        assert_eq!(elide("module_populated", 9), "modu…ated");
        assert_eq!(elide("short", 9), "short");
        assert_eq!(elide("ab", 1), "…");
    }

    #[test]
    fn columns_count_not_characters() {
        assert_eq!(elide("模型模型模型", 7), "模…型");
        assert_eq!(elide("模型模型模型", 12), "模型模型模型");
        assert_eq!(elide(&"e\u{301}".repeat(6), 5), format!("{}…{}", "e\u{301}".repeat(2), "e\u{301}".repeat(2)));
        assert_eq!(padded("模", 4), "模  ");
        assert_eq!(wrap("模型 模型 a", 6), ["模型", "模型 a"]);
        for width in 1..20 {
            for text in ["模型模型模型模型", "a模b型c模d型", "e\u{301}模e\u{301}型e\u{301}模e\u{301}"] {
                assert!(columns(&elide(text, width)) <= width, "{text} {width}");
            }
        }
    }

    #[test]
    fn lines_stay_within_the_width() {
        assert_eq!(wrap("a bb ccc dddddd", 4), ["a bb", "ccc", "dd…d"]);
    }
}
