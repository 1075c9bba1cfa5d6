//! Text that came from the launch, made fit to be shown: nothing in it moves a cursor, turns writing round, or breaks
//! a line.

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
pub fn acts_on_a_terminal(character: char) -> bool {
    character.is_control() || is_invisible(character)
}

/// Formatting characters: bidirectional controls, zero-width ones, line and paragraph separators; and what XML forbids.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
        | '\u{e0000}'..='\u{e007f}')
}

/// At most `width` characters: the middle gives way, as both ends of a name or a path tell more.
pub fn elide(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

/// Breaks at spaces into lines of at most `width` characters; a longer word is elided.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = elide(word, width);
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
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
    fn lines_stay_within_the_width() {
        assert_eq!(wrap("a bb ccc dddddd", 4), ["a bb", "ccc", "dd…d"]);
    }
}
