//! What was meant to differ between the arms (`--vary WHAT`): a subject, or one fact of it (`env:NAME`).

use std::fmt;

use super::Subject;
use crate::stage::file::hint;

/// A declared difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    subject: Subject,
    /// One fact of it; else all.
    name: Option<String>,
}

/// It declares nothing that is compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing called `{word}` is compared{hint}")]
pub struct VaryError {
    word: String,
    hint: String,
}

impl Vary {
    /// `SUBJECT` or `SUBJECT:NAME`.
    ///
    /// # Errors
    /// A subject that there is not, with the one that was probably meant; a `:` with nothing behind it.
    pub fn parse(text: &str) -> Result<Vary, VaryError> {
        let (word, name) = match text.split_once(':') {
            Some((word, name)) => (word, Some(name)),
            None => (text, None),
        };
        let names = Subject::ALL.map(Subject::name);
        let Some(subject) = Subject::ALL.into_iter().find(|subject| subject.name() == word) else {
            return Err(VaryError { word: word.to_owned(), hint: hint(word, &names) });
        };
        match name {
            Some("") => Err(VaryError { word: text.to_owned(), hint: format!("; write `{word}:NAME`, or `{word}`") }),
            name => Ok(Vary { subject, name: name.map(str::to_owned) }),
        }
    }

    /// Whether it declares that this fact may differ.
    pub fn covers(&self, subject: Subject, name: &str) -> bool {
        self.subject == subject && self.name.as_ref().is_none_or(|only| only == name)
    }
}

impl fmt::Display for Vary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.subject.name())?;
        match &self.name {
            Some(name) => write!(formatter, ":{name}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_or_one_fact_of_it() {
        let env = Vary::parse("env:HF_HOME").unwrap();
        assert!(env.covers(Subject::Env, "HF_HOME"));
        assert!(!env.covers(Subject::Env, "HF_HUB"));
        assert!(!env.covers(Subject::Host, "HF_HOME"));
        assert!(Vary::parse("env").unwrap().covers(Subject::Env, "ANY"));
        for text in ["env:A:B", "commit", "package:torch"] {
            assert_eq!(Vary::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_not_compared_is_an_error_with_the_nearest() {
        for (wrong, said) in [
            ("comit", "did you mean `commit`?"),
            ("environment", "expected `artifact`"),
            ("env:", "write `env:NAME`"),
            ("", "expected"),
        ] {
            let error = Vary::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }
}
