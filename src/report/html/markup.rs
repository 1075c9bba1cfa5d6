//! HTML that cannot be broken out of: markup comes from literals alone, and whatever else is put in is text, made plain
//! and escaped.

pub(super) use crate::report::terminal::ABSENT;
use crate::report::text::plain;

/// A piece of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Html(String);

impl Html {
    /// Markup as it is, which only the program's own text can be.
    pub fn raw(&mut self, markup: &'static str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    /// Text: nothing in it is markup, moves a cursor, or turns writing round.
    pub fn text(&mut self, text: &str) -> &mut Html {
        self.0.push_str(&escaped(text));
        self
    }

    pub fn piece(&mut self, piece: &Html) -> &mut Html {
        self.0.push_str(&piece.0);
        self
    }

    /// A tag with attributes, whose values may be anything; `None` is no attribute.
    pub fn open(&mut self, tag: &'static str, attributes: &[(&'static str, Option<&str>)]) -> &mut Html {
        self.raw("<").raw(tag);
        for (name, value) in attributes {
            if let Some(value) = value {
                self.raw(" ").raw(name).raw("=\"").text(value).raw("\"");
            }
        }
        self.raw(">")
    }

    pub fn close(&mut self, tag: &'static str) -> &mut Html {
        self.raw("</").raw(tag).raw(">")
    }

    /// An element of text.
    pub fn element(&mut self, tag: &'static str, class: Option<&'static str>, text: &str) -> &mut Html {
        self.open(tag, &[("class", class)]).text(text).close(tag)
    }

    /// A paragraph each.
    pub fn paragraphs(&mut self, paragraphs: &[String]) -> &mut Html {
        for paragraph in paragraphs {
            self.element("p", None, paragraph).raw("\n");
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in plain(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    /// The exact figure behind it, where the text is rounded.
    exact: Option<String>,
    is_figure: bool,
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// A figure, at the right edge; absent where there is none.
    pub fn figure(text: Option<String>) -> Cell {
        Cell { text: text.unwrap_or_else(|| ABSENT.to_owned()), exact: None, is_figure: true }
    }

    /// A figure as people read it, and what it is exactly.
    pub fn value(value: Option<u64>, shown: fn(u64) -> String) -> Cell {
        Cell { exact: value.map(|value| value.to_string()), ..Cell::figure(value.map(shown)) }
    }

    pub fn bytes(value: Option<u64>) -> Cell {
        Cell::value(value, crate::report::units::bytes)
    }

    pub fn exactly(mut self, exact: impl Into<String>) -> Cell {
        self.exact = Some(exact.into());
        self
    }
}

/// A table that scrolls sideways by itself where it is too wide. The first cell of each row names it.
#[derive(Default)]
pub struct Table {
    class: Option<&'static str>,
    head: Vec<Cell>,
    groups: Vec<(String, Vec<Vec<Cell>>)>,
}

impl Table {
    pub fn new(class: Option<&'static str>, head: Vec<Cell>) -> Table {
        Table { class, head, groups: Vec::new() }
    }

    /// Rows under a heading of their own; none where it is empty.
    pub fn group(&mut self, name: impl Into<String>, rows: Vec<Vec<Cell>>) {
        if !rows.is_empty() {
            self.groups.push((name.into(), rows));
        }
    }

    /// As markup; nothing for a table without rows.
    pub fn html(&self) -> Html {
        let mut html = Html::default();
        if self.groups.is_empty() {
            return html;
        }
        // With a place in the order of tabs, so that keys can scroll it.
        html.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\">");
        html.open("table", &[("class", self.class)]).raw("\n<thead><tr>");
        for cell in &self.head {
            let class = cell.is_figure.then_some("n");
            html.open("th", &[("class", class), ("scope", Some("col"))]).text(&cell.text).raw("</th>");
        }
        html.raw("</tr></thead>\n");
        for (name, rows) in &self.groups {
            html.raw("<tbody>\n");
            if !name.is_empty() {
                let width = self.head.len().to_string();
                html.raw("<tr class=\"group\">").open("th", &[("colspan", Some(&width)), ("scope", Some("rowgroup"))]);
                html.raw("<span>").text(name).raw("</span></th></tr>\n");
            }
            for row in rows {
                html.raw("<tr>");
                for (index, cell) in row.iter().enumerate() {
                    let class = Some("n").filter(|_| cell.is_figure);
                    let (tag, scope) = if index == 0 { ("th", Some("row")) } else { ("td", None) };
                    html.open(tag, &[("scope", scope), ("class", class), ("title", cell.exact.as_deref())]);
                    html.text(&cell.text).close(tag);
                }
                html.raw("</tr>\n");
            }
            html.raw("</tbody>\n");
        }
        html.raw("</table></div>\n");
        html
    }
}

/// Terms and what is to be said of each.
pub fn list(entries: &[(String, String)]) -> Html {
    let mut html = Html::default();
    if entries.is_empty() {
        return html;
    }
    html.raw("<dl>\n");
    for (term, text) in entries {
        html.raw("<div>").element("dt", None, term).element("dd", None, text).raw("</div>\n");
    }
    html.raw("</dl>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_put_in_is_markup() {
        let hostile = "</script><img src=x onerror=\"a()\">'&\u{202e}\u{1b}[31m\n\0";
        let mut html = Html::default();
        html.open("p", &[("title", Some(hostile)), ("class", None)]).text(hostile).close("p");
        let text = html.as_str();
        assert_eq!(text.matches('<').count(), 2, "{text}");
        assert_eq!(text.matches('"').count(), 2, "{text}");
        assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}");
        assert!(
            text.contains("&lt;/script&gt;&lt;img src=x onerror=&quot;a()&quot;&gt;&#39;&amp;\\u{202e}\\u{1b}[31m\\n")
        );
    }

    #[test]
    fn an_empty_table_is_nothing() {
        let mut table = Table::new(None, vec![Cell::text("a"), Cell::figure(Some("b".into()))]);
        table.group("none", Vec::new());
        assert!(table.html().is_empty());
        table.group("", vec![vec![Cell::text("x"), Cell::bytes(Some(1536))], vec![Cell::text("y"), Cell::bytes(None)]]);
        let html = table.html();
        assert!(html.as_str().contains("<td class=\"n\" title=\"1536\">1.50 KiB</td>"), "{}", html.as_str());
        assert!(html.as_str().contains("<td class=\"n\">–</td>"));
    }
}
