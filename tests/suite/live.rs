//! The live line, on a terminal: there while the command is quiet, gone before its first byte, and nowhere else.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use tempfile::TempDir;

use super::support::{Terminal, folder, stagemark};

/// Keys are echoed, as they are for somebody who types. Runs the command, says its status, and stays.
const TYPED: &str = r#"stty echo; export TERM=xterm; "$@"; echo "<status $?>"; read line"#;
const COLUMNS: u16 = 60;

fn launch(shell: &str, options: &[&str], script: &str, place: &TempDir) -> Terminal {
    let mut arguments: Vec<OsString> = vec![stagemark().get_program().into(), "run".into(), "--out".into()];
    arguments.push(place.path().join("run").into());
    arguments.extend(options.iter().map(OsString::from));
    arguments.extend(["--", "bash", "-c", script, "bash"].map(OsString::from));
    arguments.push(place.path().join("go").into());
    nix::unistd::mkfifo(&place.path().join("go"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    Terminal::start("bash", shell, &arguments, false, (31, COLUMNS))
}

/// What a terminal would show: a row for each line, `\r` to its beginning, `ESC [ K` wiping its rest.
fn rows(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let row = |line: &str| {
        let (mut row, mut at) = (Vec::new(), 0);
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\r' => at = 0,
                '\u{1b}' => {
                    assert_eq!((letters.next(), letters.next()), (Some('['), Some('K')), "{line:?}");
                    row.truncate(at);
                }
                letter => {
                    row.resize(at.max(row.len()), ' ');
                    row.splice(at..(at + 1).min(row.len()), [letter]);
                    at += 1;
                }
            }
        }
        row.into_iter().collect::<String>()
    };
    text.split('\n').map(row).collect()
}

fn output_log(place: &Path) -> String {
    let log = std::fs::read_to_string(place.join("run/output.log")).unwrap();
    log.lines().map(|line| line.rsplit('\t').next().unwrap().to_owned() + "\n").collect()
}

#[test]
fn it_is_there_while_the_command_is_quiet_and_gone_before_its_first_byte() {
    let place = folder();
    let script = r#"read x < "$1"; echo hello; printf 'wor'; read -t 1.5 x <> "$1"; echo ld"#;
    let terminal = launch(TYPED, &[], script, &place);
    let (_, at) = terminal.wait_for(" s · no stage yet", 0);
    // It is drawn anew, with figures.
    let (_, at) = terminal.wait_for("stagemark ", at);
    let (_, at) = terminal.wait_for("RSS ", at);
    std::fs::OpenOptions::new().write(true).open(place.path().join("go")).unwrap().write_all(b"\n").unwrap();
    let (all, hello) = terminal.wait_for("hello\r\n", at);
    let (all_later, _) = terminal.wait_for("<status 0>", hello);
    assert!(all[..hello].ends_with(b"\r\x1b[Khello\r\n"), "{:?}", String::from_utf8_lossy(&all));
    let before = rows(&all[..hello]);
    assert_eq!(before, ["hello", ""], "nothing of the line is left");
    for drawn in
        String::from_utf8_lossy(&all[..hello]).split("\r\u{1b}[K").filter(|drawn| drawn.starts_with("stagemark"))
    {
        assert!(drawn.chars().count() < usize::from(COLUMNS), "{drawn}");
    }
    // The command's half a line stands still for longer than the line waits, and is left alone.
    let later = String::from_utf8_lossy(&all_later[hello..]).into_owned();
    assert!(later.starts_with("world\r\n"), "{later:?}");
    assert!(!later.contains("no stage yet"), "{later:?}");
    assert_eq!(output_log(place.path()), "hello\nworld\n");
}

#[test]
fn a_command_that_prints_nothing_leaves_the_table_alone() {
    let place = folder();
    let terminal = launch(TYPED, &[], r#"read x < "$1""#, &place);
    let (_, at) = terminal.wait_for(" s · no stage yet", 0);
    std::fs::OpenOptions::new().write(true).open(place.path().join("go")).unwrap().write_all(b"\n").unwrap();
    let (all, _) = terminal.wait_for("<status 0>", at);
    let rows = rows(&strip(&all));
    assert!(!rows.iter().any(|row| row.contains("no stage yet")), "{rows:?}");
    assert!(rows[0].starts_with("stage  ") || !rows[0].starts_with("stagemark "), "{rows:?}");
    assert_eq!(output_log(place.path()), "");
}

/// A question on the terminal past the pump, with keys echoed, stays until it is answered; so does what stood before it.
#[test]
fn a_question_on_the_terminal_itself_is_not_wiped() {
    let place = folder();
    let ask = r#"read x < "$1"; printf 'sure? ' > /dev/tty; read -t 1 x <> "$1"; read x < /dev/tty; echo "got $x""#;
    let terminal = launch(TYPED, &[], ask, &place);
    let (_, at) = terminal.wait_for(" s · no stage yet", 0);
    std::fs::OpenOptions::new().write(true).open(place.path().join("go")).unwrap().write_all(b"\n").unwrap();
    let (_, asked) = terminal.wait_for("sure? ", at);
    terminal.enter(b"yes\n");
    let (all, _) = terminal.wait_for("<status 0>", asked);
    let behind = String::from_utf8_lossy(&all[asked..]).into_owned();
    assert!(behind.starts_with("yes\r\ngot yes\r\n"), "{behind:?}");
    assert!(!behind.contains("\u{1b}[K"), "{behind:?}");
    assert_eq!(output_log(place.path()), "got yes\n");
}

/// The table's own colours taken off.
fn strip(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    ["\u{1b}[1m", "\u{1b}[33m", "\u{1b}[31m", "\u{1b}[0m"]
        .iter()
        .fold(text, |text, code| text.replace(code, ""))
        .into_bytes()
}

/// Not where it is not wanted, where keys are not echoed (a password is asked for), or where somebody else's output
/// goes to the terminal as well.
#[test]
fn it_is_nowhere_else() {
    let piped = r#"stty echo; export TERM=xterm; "$@" | cat; echo "<status $?>"; read line"#;
    let unechoed = r#"export TERM=xterm; "$@"; echo "<status $?>"; read line"#;
    let dumb = r#"stty echo; export TERM=dumb; "$@"; echo "<status $?>"; read line"#;
    let cases: [(&str, &[&str]); 4] = [(TYPED, &["--quiet"]), (piped, &[]), (unechoed, &[]), (dumb, &[])];
    for (shell, options) in cases {
        let place = folder();
        // Longer than a line that were drawn would take to appear.
        let terminal = launch(shell, options, r#"read -t 1.6 x <> "$1"; echo done"#, &place);
        let (all, _) = terminal.wait_for("<status 0>", 0);
        let all = String::from_utf8_lossy(&all).into_owned();
        assert!(!all.contains("no stage yet") && !all.contains("\u{1b}[K"), "{shell}: {all:?}");
        assert!(all.starts_with("done\r\n"), "{shell}: {all:?}");
    }
}
