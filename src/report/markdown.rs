//! The stage table as Markdown, to be pasted into a pull request: a row a stage, and under it the start condition and
//! the stopping event, without which no figure of it means anything. Nothing that the launch named becomes markup.

use crate::account::{StageRow, StageTable};
use crate::metric::Metric;
use crate::run::Run;

use super::terminal::{ABSENT, seconds};
use super::text::plain;
use super::{units, words};

/// A column's head, and what stands in it.
type Column = (&'static str, fn(&StageRow) -> Option<String>);

const COLUMNS: [Column; 8] = [
    ("time (s)", |row| row.at().map(seconds)),
    ("mapped", |row| bytes(row, Metric::MappedPayloadBytes)),
    ("resident", |row| bytes(row, Metric::ResidentPayloadBytes)),
    ("RSS", |row| bytes(row, Metric::RssBytes)),
    ("host total", host),
    ("device", |row| bytes(row, Metric::DeviceLaunchBytes)),
    ("+read", |row| row.deltas.get(Metric::ReadBytes).map(units::bytes)),
    ("+faults", super::terminal::faults),
];

fn bytes(row: &StageRow, metric: Metric) -> Option<String> {
    row.values.get(metric).map(units::bytes)
}

/// Both bounds, where they are two.
fn host(row: &StageRow) -> Option<String> {
    let total = row.host.total;
    match (total.low.map(units::bytes), total.high.map(units::bytes)) {
        (Some(low), Some(high)) if low == high => Some(low),
        (Some(low), Some(high)) => Some(format!("{low} – {high}")),
        (Some(low), None) => Some(format!("at least {low}")),
        (None, Some(high)) => Some(format!("at most {high}")),
        (None, None) => None,
    }
}

/// The table and what it is of.
pub fn text(run: &Run, table: &StageTable) -> String {
    let mut text = String::from("| stage |");
    COLUMNS.iter().for_each(|(head, _)| text.push_str(&format!(" {head} |")));
    text.push_str("\n|---|");
    COLUMNS.iter().for_each(|_| text.push_str("--:|"));
    text.push('\n');
    for row in table.reached() {
        text.push_str(&format!("| {} |", inert(&row.outcome.stage)));
        for (_, value) in &COLUMNS {
            text.push_str(&format!(" {} |", value(row).unwrap_or_else(|| ABSENT.to_owned())));
        }
        text.push('\n');
    }
    let stages = format!("stages: {}", words::stage_file(run));
    let mut lines = words::missing(table);
    lines.push(
        "time since start; memory at the stage; +read and +faults since the stage before; – is not known".to_owned(),
    );
    lines.push(words::condition(run));
    lines.push(format!("{} · {stages}", words::stopping_event(run, table)));
    lines.push(format!("stagemark {}: {}", run.meta.stagemark, run.meta.argv.join(" ")));
    for line in lines {
        // A paragraph each: a line end alone is a space.
        text.push_str(&format!("\n{}\n", inert(&line)));
    }
    text
}

/// Text on one line of which nothing is markup: not of Markdown, not of a table, no HTML, no link, no name that a forge
/// would notify.
fn inert(text: &str) -> String {
    let text = plain(text);
    let letters: Vec<char> = text.chars().collect();
    let mut inert = String::with_capacity(text.len());
    for (index, letter) in letters.iter().enumerate() {
        let is_word =
            |at: Option<usize>| at.and_then(|at| letters.get(at)).is_some_and(|letter| letter.is_alphanumeric());
        match letter {
            // Within a word it is no emphasis, and names are full of it.
            '_' if is_word(index.checked_sub(1)) && is_word(Some(index + 1)) => inert.push('_'),
            // These open a block at the beginning of a line alone.
            '+' | '-' | '.' | ')' if index > 0 && !letters[..index].iter().all(char::is_ascii_digit) => {
                inert.push(*letter)
            }
            // A backslash does not keep a forge from these.
            '@' => inert.push_str("&#64;"),
            '#' => inert.push_str("&#35;"),
            // A bare address becomes a link.
            ':' if letters.get(index + 1) == Some(&'/') => inert.push_str("&#58;"),
            '<' => inert.push_str("&lt;"),
            '>' => inert.push_str("&gt;"),
            '&' => inert.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '(' | ')' | '+' | '-' | '.' | '!' | '|' | '~' | '$'
            | '=' => {
                inert.push('\\');
                inert.push(*letter);
            }
            _ => inert.push(*letter),
        }
    }
    inert
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_markup() {
        assert_eq!(inert("module_populated"), "module_populated");
        assert_eq!(inert("a|b"), "a\\|b");
        assert_eq!(inert("<img src=x>"), "&lt;img src\\=x&gt;");
        assert_eq!(inert("**a** _b_ `c` ~~d~~"), "\\*\\*a\\*\\* \\_b\\_ \\`c\\` \\~\\~d\\~\\~");
        assert_eq!(inert("[a](https://x)"), "\\[a\\]\\(https&#58;//x)");
        assert_eq!(inert("@team #12 &copy;"), "&#64;team &#35;12 &amp;copy;");
        assert_eq!(inert("- a"), "\\- a");
        assert_eq!(inert("12. a"), "12\\. a");
        assert_eq!(inert("2.91 s"), "2\\.91 s");
        assert_eq!(inert("a\nb"), "a\\\\nb");
    }
}
