//! The derived parts of the README and the glossary are what they are derived from. `UPDATE_GOLDEN=1` writes them anew.

use std::path::Path;

use stagemark::report::columns;

/// What stands between `<!-- NAME -->` and `<!-- /NAME -->`.
fn part<'a>(text: &'a str, name: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("<!-- {name} -->\n")).unwrap();
    rest.split_once(&format!("<!-- /{name} -->")).unwrap().0
}

fn assert_part(file: &str, name: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let found = part(&text, name);
    if found != wanted && std::env::var_os("UPDATE_GOLDEN").is_some() {
        let marked = |text: &str| format!("<!-- {name} -->\n{text}<!-- /{name} -->");
        std::fs::write(&path, text.replace(&marked(found), &marked(wanted))).unwrap();
    } else {
        assert_eq!(found, wanted, "UPDATE_GOLDEN=1 writes it anew");
    }
}

#[test]
fn columns_and_example_are_the_programs_own() {
    assert_part("reports/columns.md", "columns", &columns::markdown());
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/example/table.txt");
    let table = std::fs::read_to_string(example).unwrap();
    assert_part("README.md", "example", &format!("```text\n{}\n```\n", table.trim_end()));
    let compared = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/compare.mmap-read.txt");
    let compared = std::fs::read_to_string(compared).unwrap();
    assert_part("reports/comparing.md", "compared", &format!("```text\n{}\n```\n", compared.trim_end()));
}
