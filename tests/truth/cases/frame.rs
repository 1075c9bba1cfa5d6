//! The frame itself: a claim that does not hold is told from one that does.

use crate::bench::Bench;
use crate::claim::{Claim, Figure, grouped};
use crate::harness::Case;

pub const CASES: &[Case] = &[Case::new("a_wrong_claim_fails", a_wrong_claim_fails)];

fn a_wrong_claim_fails(_: &Bench) -> Vec<Claim> {
    let bounds = |low, high| Figure::Bounds(low, high);
    let absent = || Figure::Absent("withheld: not the owner".into());
    let right = [
        Claim::exact("", 5, Figure::Exact(5)),
        Claim::between("", 4..=6, Figure::Exact(6)),
        Claim::exact("", 5, bounds(Some(3), Some(8))).widest(5),
        Claim::between("", 5..=9, bounds(Some(2), None)).widest(3),
        Claim::between("", 5..=9, bounds(None, Some(11))).widest(2),
        Claim::absent("", "not the owner", absent()),
        Claim::words("", "from storage", "all of it from storage"),
        Claim::holds("", true, 1),
    ];
    let wrong = [
        Claim::exact("", 5, Figure::Exact(6)),
        Claim::between("", 4..=6, Figure::Exact(3)),
        Claim::exact("", 5, absent()),
        Claim::exact("", 5, bounds(Some(3), Some(8))),
        Claim::exact("", 5, bounds(Some(3), Some(8))).widest(4),
        Claim::exact("", 5, bounds(Some(6), Some(8))).widest(9),
        Claim::exact("", 5, bounds(Some(1), Some(4))).widest(9),
        Claim::between("", 5..=9, bounds(Some(2), None)).widest(2),
        Claim::between("", 5..=9, bounds(None, None)).widest(2),
        Claim::absent("", "not the owner", Figure::Exact(0)),
        Claim::absent("", "hugetlbfs", absent()),
        Claim::words("", "from storage", "cannot tell"),
        Claim::holds("", false, "so"),
    ];
    let held = |claims: &[Claim]| claims.iter().filter(|claim| claim.verdict().is_ok()).count() as u64;
    vec![
        Claim::exact("claims that hold, of 8 that must", 8, Figure::Exact(held(&right))),
        Claim::exact("claims that hold, of 13 that must not", 0, Figure::Exact(held(&wrong))),
        Claim::words(
            "digits in groups",
            "0 12 123 1,234 1,234,567",
            [0, 12, 123, 1234, 1_234_567].map(grouped).join(" "),
        ),
    ]
}
