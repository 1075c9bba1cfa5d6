//! The README's derived parts are what they are derived from. `UPDATE_GOLDEN=1` writes them anew.

use std::path::Path;

use stagemark::metric;

/// What stands between `<!-- NAME -->` and `<!-- /NAME -->`.
fn part<'a>(readme: &'a str, name: &str) -> &'a str {
    let (_, rest) = readme.split_once(&format!("<!-- {name} -->\n")).unwrap();
    rest.split_once(&format!("<!-- /{name} -->")).unwrap().0
}

fn assert_part(name: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let found = part(&readme, name);
    if found != wanted && std::env::var_os("UPDATE_GOLDEN").is_some() {
        let marked = |text: &str| format!("<!-- {name} -->\n{text}<!-- /{name} -->");
        std::fs::write(&path, readme.replace(&marked(found), &marked(wanted))).unwrap();
    } else {
        assert_eq!(found, wanted, "UPDATE_GOLDEN=1 writes it anew");
    }
}

#[test]
fn its_columns_and_its_example_are_the_programs_own() {
    assert_part("columns", &metric::markdown());
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/example/table.txt");
    let table = std::fs::read_to_string(example).unwrap();
    assert_part("example", &format!("```text\n{}\n```\n", table.trim_end()));
}
