//! What is claimed, what is true, and what the tool said.

use std::fmt;
use std::ops::RangeInclusive;

/// What is known of the true value.
#[derive(Clone, Debug)]
pub enum Truth {
    /// It is one of these; a moment that is not known exactly makes it more than one.
    Between(u64, u64),
    /// It cannot be known from outside, for a reason that says this among other things.
    Unknowable(String),
    /// Words that the tool's words contain.
    Words(String),
}

/// What the tool said.
#[derive(Clone, Debug)]
pub enum Figure {
    Exact(u64),
    /// An end that is `None` is open.
    Bounds(Option<u64>, Option<u64>),
    /// With its reason.
    Absent(String),
    Words(String),
}

/// Why a claim does not hold.
#[derive(Clone, Debug)]
pub enum Wrong {
    /// The figure is not true, or not the one that must be there.
    Untrue(String),
    /// The bounds are true, and wider than stated, or the figure is said to be older than its look: one that others kept
    /// from the processor is cut short, and says less.
    Wide(String),
}

impl Wrong {
    pub fn why(&self) -> &str {
        match self {
            Wrong::Untrue(why) | Wrong::Wide(why) => why,
        }
    }
}

impl From<String> for Wrong {
    fn from(why: String) -> Wrong {
        Wrong::Untrue(why)
    }
}

impl From<&str> for Wrong {
    fn from(why: &str) -> Wrong {
        Wrong::Untrue(why.to_owned())
    }
}

/// One claim of a case.
#[derive(Clone, Debug)]
pub struct Claim {
    what: String,
    truth: Truth,
    figure: Figure,
    /// How far a bound may be from the truth, or two bounds from each other.
    widest: Option<u64>,
    /// For so many nanoseconds before the look the figure may be of a time, as the tool says itself.
    stale: Option<u64>,
}

impl Claim {
    fn new(what: impl Into<String>, truth: Truth, figure: Figure) -> Claim {
        Claim { what: what.into(), truth, figure, widest: None, stale: None }
    }

    /// The true value is this one.
    pub fn exact(what: impl Into<String>, truth: u64, figure: Figure) -> Claim {
        Claim::new(what, Truth::Between(truth, truth), figure)
    }

    /// The true value is one of these. Make the range no wider than what is not known.
    pub fn between(what: impl Into<String>, truth: RangeInclusive<u64>, figure: Figure) -> Claim {
        Claim::new(what, Truth::Between(*truth.start(), *truth.end()), figure)
    }

    /// There must be no figure, and the reason must contain these words.
    pub fn absent(what: impl Into<String>, because: &str, figure: Figure) -> Claim {
        Claim::new(what, Truth::Unknowable(because.to_owned()), figure)
    }

    /// The tool's words must contain these.
    pub fn words(what: impl Into<String>, truth: impl Into<String>, said: impl Into<String>) -> Claim {
        Claim::new(what, Truth::Words(truth.into()), Figure::Words(said.into()))
    }

    /// A relation that must hold, for what is neither a number nor a text; `seen` is what stands in the table.
    pub fn holds(what: impl Into<String>, holds: bool, seen: impl fmt::Display) -> Claim {
        let seen = if holds { format!("so: {seen}") } else { format!("not so: {seen}") };
        Claim::new(what, Truth::Words("so".into()), Figure::Words(seen))
    }

    /// The widest that bounds may be: from each other, or, where one end is open, from the truth. Bounds without it do
    /// not hold.
    pub fn widest(self, widest: u64) -> Claim {
        Claim { widest: Some(widest), ..self }
    }

    /// The tool says that its figure may be older than the look that it is of: one that does not hold is no lie then.
    pub fn stale(self, ns: Option<u64>) -> Claim {
        Claim { stale: ns, ..self }
    }

    /// Whether it holds; if not, why.
    pub fn verdict(&self) -> Result<(), Wrong> {
        match (self.of_its_time(), self.stale) {
            (Err(Wrong::Untrue(why)), Some(ns)) => Err(Wrong::Wide(format!("{why}, up to {} ms old", ns / 1_000_000))),
            (verdict, _) => verdict,
        }
    }

    fn of_its_time(&self) -> Result<(), Wrong> {
        let (low, high) = match (&self.truth, &self.figure) {
            (&Truth::Between(low, high), Figure::Exact(_) | Figure::Bounds(..)) => (low, high),
            (Truth::Unknowable(because), Figure::Absent(reason)) if reason.contains(because) => return Ok(()),
            (Truth::Unknowable(because), Figure::Absent(_)) => {
                return Err(format!("the reason lacks `{because}`").into());
            }
            (Truth::Unknowable(_), _) => return Err("there is a figure, which nobody can know".into()),
            (Truth::Between(..), Figure::Absent(_)) => return Err("absent".into()),
            (Truth::Words(words), Figure::Words(said)) if said.starts_with("not so") && words == "so" => {
                return Err("it is not so".into());
            }
            (Truth::Words(words), Figure::Words(said)) if said.contains(words.as_str()) => return Ok(()),
            (Truth::Words(words), _) => return Err(format!("it does not say `{words}`").into()),
            (_, Figure::Words(_)) => return Err("words, not a figure".into()),
        };
        match self.figure {
            Figure::Exact(figure) if figure < low => Err(format!("{} too few", grouped(low - figure)).into()),
            Figure::Exact(figure) if figure > high => Err(format!("{} too many", grouped(figure - high)).into()),
            Figure::Exact(_) => Ok(()),
            Figure::Bounds(from, to) => {
                if let Some(from) = from.filter(|from| *from > high) {
                    return Err(format!("the low bound is {} too high", grouped(from - high)).into());
                }
                if let Some(to) = to.filter(|to| *to < low) {
                    return Err(format!("the high bound is {} too low", grouped(low - to)).into());
                }
                let Some(widest) = self.widest else { return Err("bounds, and no widest is stated".into()) };
                let width = match (from, to) {
                    (Some(from), Some(to)) => {
                        to.checked_sub(from).ok_or_else(|| "the high bound is below the low one".to_owned())?
                    }
                    (Some(from), None) => low.saturating_sub(from),
                    (None, Some(to)) => to.saturating_sub(high),
                    (None, None) => return Err("both ends are open".into()),
                };
                if width > widest {
                    Err(Wrong::Wide(format!("{} wide, at most {}", grouped(width), grouped(widest))))
                } else {
                    Ok(())
                }
            }
            Figure::Absent(_) | Figure::Words(_) => Ok(()),
        }
    }

    /// What is claimed, the truth and the figure, as the table has them.
    pub fn cells(&self) -> [String; 3] {
        let truth = match &self.truth {
            Truth::Between(low, high) if low == high => grouped(*low),
            Truth::Between(low, u64::MAX) => format!("≥ {}", grouped(*low)),
            Truth::Between(low, high) => format!("{} … {}", grouped(*low), grouped(*high)),
            Truth::Unknowable(because) => format!("absent: {because}"),
            Truth::Words(words) => words.clone(),
        };
        let end = |end: Option<u64>| end.map_or_else(|| "open".to_owned(), grouped);
        let figure = match &self.figure {
            Figure::Exact(figure) => grouped(*figure),
            Figure::Bounds(low, high) => format!("[{}, {}]", end(*low), end(*high)),
            Figure::Absent(reason) => format!("absent: {reason}"),
            Figure::Words(words) => words.clone(),
        };
        [self.what.clone(), truth, figure]
    }
}

/// An exact number with its digits in groups.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let groups = digits.as_bytes()[first..].chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let head = (first > 0).then(|| digits[..first].to_owned());
    head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}
