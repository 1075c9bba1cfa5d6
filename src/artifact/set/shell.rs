//! The words of a shell's `-c` argument. Splits and unquotes, and evaluates nothing: what the shell would put together
//! from variables, commands or patterns is not known here, and a word with such a part is left empty.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "ash"];

/// Where in a command line a script stands: behind `-c` (or `-lc`, `-x -c`, `-o pipefail -c`) of a shell.
pub fn script_at(argv: &[OsString]) -> Option<usize> {
    let is_flag = |word: &OsString| word.as_bytes().starts_with(b"-") || word.as_bytes().starts_with(b"+");
    (1..argv.len().saturating_sub(1)).find_map(|flag| {
        let bytes = argv[flag].as_bytes();
        if !bytes.starts_with(b"-") || bytes.starts_with(b"--") || !bytes.ends_with(b"c") || bytes.len() > 6 {
            return None;
        }
        let mut program = flag - 1;
        while program > 0 && !is_shell(&argv[program]) {
            let option_with_name = argv[program - 1] == "-o" || argv[program - 1] == "+o";
            if !is_flag(&argv[program]) && !option_with_name {
                return None;
            }
            program -= 1;
        }
        is_shell(&argv[program]).then_some(flag + 1)
    })
}

fn is_shell(word: &OsStr) -> bool {
    Path::new(word).file_name().is_some_and(|name| SHELLS.iter().any(|shell| name == *shell))
}

/// The simple commands of a script, each as its words, without variables set before it. A script whose quotes do not
/// close has none.
pub fn commands(script: &OsStr) -> Vec<Vec<OsString>> {
    let mut reader = Reader::default();
    let mut bytes = script.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\'' => loop {
                match bytes.next() {
                    Some(b'\'') => break reader.quoted(),
                    Some(byte) => reader.word.push(byte),
                    None => return Vec::new(),
                }
            },
            b'"' => loop {
                match bytes.next() {
                    Some(b'"') => break reader.quoted(),
                    Some(b'\\') => match bytes.next() {
                        Some(b'\n') => {}
                        Some(byte @ (b'"' | b'\\' | b'$' | b'`')) => reader.word.push(byte),
                        Some(byte) => reader.word.extend([b'\\', byte]),
                        None => return Vec::new(),
                    },
                    Some(b'$' | b'`') => reader.unknown = true,
                    Some(byte) => reader.word.push(byte),
                    None => return Vec::new(),
                }
            },
            b'\\' => match bytes.next() {
                Some(b'\n') | None => {}
                Some(byte) => reader.word.push(byte),
            },
            b' ' | b'\t' => reader.end_word(),
            b'\n' | b';' | b'&' | b'|' | b'(' | b')' => reader.end_command(),
            b'<' | b'>' => {
                reader.end_word();
                reader.redirected = true;
                // `>>`, `<<`, `2>&1`, `>|`.
                while bytes.next_if(|next| matches!(next, b'<' | b'>' | b'&' | b'|')).is_some() {}
            }
            b'#' if reader.word.is_empty() && !reader.begun => while bytes.next_if(|next| *next != b'\n').is_some() {},
            b'$' | b'`' | b'*' | b'?' | b'[' | b'{' => reader.unknown = true,
            b'~' if reader.word.is_empty() => reader.unknown = true,
            byte => reader.word.push(byte),
        }
    }
    reader.end_command();
    reader.commands
}

#[derive(Default)]
struct Reader {
    commands: Vec<Vec<OsString>>,
    words: Vec<OsString>,
    word: Vec<u8>,
    /// A quote began the word, so that there is one even if it is empty.
    begun: bool,
    unknown: bool,
    /// The next word is a file that is read or written.
    redirected: bool,
}

impl Reader {
    fn quoted(&mut self) {
        self.begun = true;
    }

    fn end_word(&mut self) {
        let (word, unknown) = (std::mem::take(&mut self.word), std::mem::take(&mut self.unknown));
        if !std::mem::take(&mut self.begun) && word.is_empty() && !unknown {
            return;
        }
        if std::mem::take(&mut self.redirected) || self.words.is_empty() && is_assignment(&word) {
            return;
        }
        self.words.push(if unknown { OsString::new() } else { OsString::from_vec(word) });
    }

    fn end_command(&mut self) {
        self.end_word();
        self.redirected = false;
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
    }
}

/// `NAME=VALUE` before a command.
fn is_assignment(word: &[u8]) -> bool {
    let Some(equals) = word.iter().position(|&byte| byte == b'=') else { return false };
    equals > 0 && word[..equals].iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn of(script: &str) -> Vec<Vec<String>> {
        let text = |word: OsString| word.into_string().unwrap();
        commands(OsStr::new(script)).into_iter().map(|words| words.into_iter().map(text).collect()).collect()
    }

    #[test]
    fn words_are_split_and_unquoted() {
        assert_eq!(of("vllm serve org/name --port 8000"), [["vllm", "serve", "org/name", "--port", "8000"]]);
        assert_eq!(
            of("cd /m && exec a 'b c' \"d \\\"e\\\"\" f\\ g"),
            [vec!["cd", "/m"], vec!["exec", "a", "b c", "d \"e\"", "f g"]]
        );
        assert_eq!(
            of("A=1 B='x y' run m.gguf 2>&1 >log.gguf | tee x; y # z"),
            [vec!["run", "m.gguf", "2"], vec!["tee", "x"], vec!["y"]]
        );
        assert_eq!(of("a \\\n b ''"), [["a", "b", ""]]);
        assert_eq!(of(" ;; \n "), Vec::<Vec<String>>::new());
    }

    #[test]
    fn what_the_shell_would_put_together_is_not_known() {
        assert_eq!(of("a --model $MODEL \"$HOME/m\" *.gguf ~/m '$x'"), [["a", "--model", "", "", "", "", "$x"]]);
        assert_eq!(of("a 'b"), Vec::<Vec<String>>::new());
        assert_eq!(of("a \"b\\"), Vec::<Vec<String>>::new());
    }

    #[test]
    fn scripts_stand_behind_a_shells_flag() {
        let at = |line: &[&str]| script_at(&line.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(at(&["bash", "-c", "x"]), Some(2));
        assert_eq!(at(&["/bin/sh", "-lc", "x", "y"]), Some(2));
        assert_eq!(at(&["env", "A=1", "bash", "-x", "-o", "pipefail", "-ec", "x"]), Some(7));
        assert_eq!(at(&["python", "-c", "x"]), None);
        assert_eq!(at(&["python", "-u", "-c", "x"]), None);
        assert_eq!(at(&["bash", "start.sh", "-c", "x"]), None);
        assert_eq!(at(&["bash", "-c"]), None);
        assert_eq!(at(&[]), None);
    }

    proptest::proptest! {
        #[test]
        fn no_script_is_too_strange(script in "[a '\"\\\\$;|&<>#~=\n]{0,40}") {
            proptest::prop_assert!(commands(OsStr::new(&script)).iter().all(|words| !words.is_empty()));
        }
    }
}
