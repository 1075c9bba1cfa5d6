//! One arm of a series: a name, a command line, and variables of its environment.
//!
//! The command is split into words as a shell would, and no shell is run: one that is wanted stands in the command, as
//! `sh -c '…'`.

use std::collections::BTreeMap;

use crate::host::mask::{MASK, is_secret_name};
use crate::host::{mask_argv, mask_text};

/// A command under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    pub name: String,
    pub argv: Vec<String>,
    /// In order; a later one of the same name counts.
    pub environment: Vec<(String, String)>,
}

/// Why an arm is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArmError {
    #[error("expected NAME='COMMAND', as in A='python serve.py'")]
    NoCommand,
    #[error("`{0}` cannot be an arm's name: 1 to 32 letters, digits, `_`, `-`")]
    Name(String),
    #[error("{0}: the command's quotes do not close")]
    Quotes(String),
    #[error("{0}: the command is empty")]
    Empty(String),
    #[error("{arm}: `{word}` is a shell's, and no shell is run: write {arm}=\"sh -c '…'\"")]
    Shell { arm: String, word: String },
    #[error("{0}: there are two arms of that name")]
    Twice(String),
    #[error("expected ARM:NAME=VALUE, as in A:OMP_NUM_THREADS=4")]
    Environment,
    #[error("{0}: there is no such arm")]
    Unknown(String),
}

/// Whether this can be an arm's name, which is a part of a folder's.
pub(super) fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

impl Arm {
    /// From `NAME=COMMAND`. Assignments before the command are its environment, as a shell has it.
    pub fn parse(text: &str) -> Result<Arm, ArmError> {
        const SHELLS: [&str; 12] = ["|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "<<", "<<<"];
        let (name, command) = text.split_once('=').ok_or(ArmError::NoCommand)?;
        if !is_name(name) {
            return Err(ArmError::Name(name.to_owned()));
        }
        let mut words = shell_words::split(command).map_err(|_| ArmError::Quotes(name.to_owned()))?;
        let assignments = words.iter().take_while(|word| assignment(word).is_some()).count();
        let argv = words.split_off(assignments);
        let environment = words.iter().filter_map(|word| assignment(word)).collect();
        if argv.first().is_none_or(String::is_empty) {
            return Err(ArmError::Empty(name.to_owned()));
        }
        if let Some(word) = argv.iter().find(|word| SHELLS.contains(&word.as_str())) {
            return Err(ArmError::Shell { arm: name.to_owned(), word: word.clone() });
        }
        Ok(Arm { name: name.to_owned(), argv, environment })
    }

    /// Arms of a command line, with `ARM:NAME=VALUE` for each variable.
    pub fn all(arms: &[String], environment: &[String]) -> Result<Vec<Arm>, ArmError> {
        let mut all: Vec<Arm> = Vec::new();
        for text in arms {
            let arm = Arm::parse(text)?;
            if all.iter().any(|other| other.name == arm.name) {
                return Err(ArmError::Twice(arm.name));
            }
            all.push(arm);
        }
        for text in environment {
            let (name, rest) = text.split_once(':').ok_or(ArmError::Environment)?;
            let variable = assignment(rest).ok_or(ArmError::Environment)?;
            let arm = all.iter_mut().find(|arm| arm.name == name);
            arm.ok_or_else(|| ArmError::Unknown(name.to_owned()))?.environment.push(variable);
        }
        Ok(all)
    }

    /// The command line as it may be kept: secrets masked.
    pub fn masked_argv(&self) -> Vec<String> {
        mask_argv(&self.argv)
    }

    /// Its own variables as they may be kept: secrets masked.
    pub fn masked_environment(&self) -> BTreeMap<String, String> {
        let masked = |(name, value): &(String, String)| {
            let value = if is_secret_name(name) { MASK.to_owned() } else { mask_text(value).into_owned() };
            (name.clone(), value)
        };
        self.environment.iter().map(masked).collect()
    }
}

/// `NAME=VALUE`, where that is an assignment.
fn assignment(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_name = begins && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_and_not_evaluated() {
        let arm = Arm::parse("A=X=1 Y='a b' python -c 'print(\"$HOME\")' a\\ b \"\" k=v").unwrap();
        assert_eq!(arm.name, "A");
        assert_eq!(arm.argv, ["python", "-c", "print(\"$HOME\")", "a b", "", "k=v"]);
        assert_eq!(arm.environment, [("X".into(), "1".into()), ("Y".into(), "a b".into())]);
        let arm = Arm::parse("B=sh -c 'a | b > c'").unwrap();
        assert_eq!(arm.argv, ["sh", "-c", "a | b > c"]);
    }

    #[test]
    fn what_is_no_arm_is_said() {
        let said = |text: &str| Arm::parse(text).unwrap_err().to_string();
        assert!(said("A").starts_with("expected NAME='COMMAND'"));
        assert!(said("=x").contains("cannot be an arm's name"));
        assert!(said("../a=x").contains("cannot be an arm's name"));
        assert_eq!(said("A='x"), "A: the command's quotes do not close");
        assert_eq!(said("A="), "A: the command is empty");
        assert_eq!(said("A=X=1"), "A: the command is empty");
        assert_eq!(said("A=a | b"), "A: `|` is a shell's, and no shell is run: write A=\"sh -c '…'\"");
    }

    #[test]
    fn variables_are_an_arms_own() {
        let texts = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        let arms = Arm::all(&texts(&["A=x", "B=x"]), &texts(&["B:OMP_NUM_THREADS=4", "B:MY_TOKEN=s=ecret"])).unwrap();
        assert!(arms[0].environment.is_empty());
        assert_eq!(arms[1].environment[1], ("MY_TOKEN".into(), "s=ecret".into()));
        let kept = arms[1].masked_environment();
        assert_eq!(kept["OMP_NUM_THREADS"], "4");
        assert!(!kept["MY_TOKEN"].contains("ecret"), "{kept:?}");
        let said =
            |arms: &[&str], environment: &[&str]| Arm::all(&texts(arms), &texts(environment)).unwrap_err().to_string();
        assert_eq!(said(&["A=x", "A=y"], &[]), "A: there are two arms of that name");
        assert_eq!(said(&["A=x"], &["B:X=1"]), "B: there is no such arm");
        assert!(said(&["A=x"], &["X=1"]).starts_with("expected ARM:NAME=VALUE"));
        assert!(said(&["A=x"], &["A:1=1"]).starts_with("expected ARM:NAME=VALUE"));
    }
}
