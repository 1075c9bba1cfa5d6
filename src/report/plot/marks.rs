//! Where the marks' labels stand, so that none overlaps another, hides another's line, or leaves the picture.
//!
//! A label stands beside its line, to the right or to the left, in one of a few rows; its line goes up to it past the
//! rows below. Where no such arrangement exists in the rows allowed, each mark has a number instead, in one row above
//! the panels, and a list of what the numbers mean stands above that.

use super::font;

/// Size of a label's letters.
pub const EM: i32 = 25;
/// Height of a row.
pub const ROW: i32 = 36;
/// Between a name and a time. SVG draws several plain spaces as one, so these are not plain.
const SPACE: &str = "\u{a0}\u{a0}";
/// How far a label stands from its line.
const BESIDE: i32 = 8;
/// Least space between two labels of a row.
const APART: i32 = 14;
/// Widest label.
const WIDEST: i32 = 640;
/// Most rows of labels beside their lines.
const ROWS: usize = 5;
/// Most rows of the list of numbered marks; its columns get narrower instead.
const LIST_ROWS: usize = 8;
/// Most marks for which every choice of sides is tried.
const TRIED: usize = 9;

/// A mark to label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub x: i32,
    pub name: String,
    pub time: String,
}

/// A label's place: its left end, its row (0 is the lowest), its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub left: i32,
    pub row: usize,
    pub text: String,
}

/// Where all labels stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Beside their lines: one label a mark, in the order of the marks; how many rows there are.
    Beside(Vec<Label>, usize),
    /// By number: where each mark's number stands (its middle), then the list's labels and how many rows it has.
    Numbered { numbers: Vec<i32>, list: Vec<Label>, rows: usize },
}

/// Places the labels of marks that are given in the order of time, between two edges.
pub fn place(marks: &[Mark], left: i32, right: i32) -> Placement {
    let texts: Vec<String> = marks
        .iter()
        .map(|mark| {
            let time = format!("{SPACE}{}", mark.time);
            let room = WIDEST.min((right - left) / 2) - font::width(&time, EM);
            font::fit(&mark.name, EM, room) + &time
        })
        .collect();
    let widths: Vec<i32> = texts.iter().map(|text| font::width(text, EM)).collect();
    match beside(marks, &widths, left, right) {
        Some((places, rows)) => {
            let labels = places.into_iter().zip(texts).map(|((left, row), text)| Label { left, row, text });
            Placement::Beside(labels.collect(), rows)
        }
        None => numbered(marks, left, right),
    }
}

/// A left end and a row for each label.
type Places = Vec<(i32, usize)>;

/// The arrangement with the fewest rows; of those, the one with most labels to the right of their lines.
fn beside(marks: &[Mark], widths: &[i32], left: i32, right: i32) -> Option<(Places, usize)> {
    let count = marks.len();
    // More text than the rows have room for fits in no arrangement: there is no need to try.
    let needed: i64 = widths.iter().map(|width| i64::from(*width + APART)).sum();
    if needed > ROWS as i64 * i64::from(right - left + APART) {
        return None;
    }
    let choices: u32 = if count <= TRIED { 1 << count } else { 1 };
    // Rows, labels to the left, places.
    let mut best: Option<((usize, u32), Places)> = None;
    for choice in 0..choices {
        let lefts: Option<Vec<i32>> = (0..count)
            .map(|index| {
                let x = marks[index].x;
                let (to_right, to_left) = (x + BESIDE, x - BESIDE - widths[index]);
                // With too many marks to try them all, a label is to the right wherever it fits there.
                let flipped = if count <= TRIED { choice >> index & 1 == 1 } else { to_right + widths[index] > right };
                let place = if flipped { to_left } else { to_right };
                (place >= left && place + widths[index] <= right).then_some(place)
            })
            .collect();
        let Some(lefts) = lefts else { continue };
        let Some(rows) = rows(marks, widths, &lefts) else { continue };
        let height = rows.iter().max().map_or(0, |row| row + 1);
        let flips = choice.count_ones();
        if height <= ROWS && best.as_ref().is_none_or(|(least, _)| (height, flips) < *least) {
            best = Some(((height, flips), lefts.into_iter().zip(rows).collect()));
        }
    }
    best.map(|((rows, _), places)| (places, rows))
}

/// A row for each label: above the labels of the lines that it would hide, and beside none that it would overlap.
/// `None` where two labels each stand over the other's line.
fn rows(marks: &[Mark], widths: &[i32], lefts: &[i32]) -> Option<Vec<usize>> {
    let count = marks.len();
    let end = |index: usize| lefts[index] + widths[index];
    let hides = |label: usize, line: usize| {
        label != line
            && lefts[label] - BESIDE < marks[line].x
            && marks[line].x < end(label) + BESIDE
            && marks[label].x != marks[line].x
    };
    let overlap = |a: usize, b: usize| lefts[a] < end(b) + APART && lefts[b] < end(a) + APART;
    let mut rows: Vec<Option<usize>> = vec![None; count];
    for _ in 0..count {
        // The last of those that need only what is placed already: of marks at one time the first comes to stand highest.
        let next = (0..count).rev().find(|&label| {
            rows[label].is_none() && (0..count).all(|line| !hides(label, line) || rows[line].is_some())
        })?;
        let least = (0..count).filter(|&line| hides(next, line)).filter_map(|line| rows[line]).max();
        let mut row = least.map_or(0, |row| row + 1);
        while (0..count).any(|other| rows[other] == Some(row) && overlap(next, other)) {
            row += 1;
        }
        rows[next] = Some(row);
    }
    rows.into_iter().collect()
}

/// Size of a number's room.
pub const NUMBER: i32 = 46;

fn numbered(marks: &[Mark], left: i32, right: i32) -> Placement {
    // Numbers stand over their marks, pushed apart to the right, then back from the right edge.
    let half = NUMBER / 2;
    let apart = NUMBER.min((right - left) / marks.len().max(1) as i32);
    let mut numbers: Vec<i32> = Vec::with_capacity(marks.len());
    for mark in marks {
        let least = numbers.last().map_or(left + half, |before| before + apart);
        numbers.push(mark.x.max(least));
    }
    let mut most = right - half;
    for number in numbers.iter_mut().rev() {
        *number = (*number).min(most);
        most = *number - apart;
    }
    let names: Vec<String> = marks
        .iter()
        .zip(1..)
        .map(|(mark, number)| format!("{number}{SPACE}{}{SPACE}{}", mark.name, mark.time))
        .collect();
    let widest = names.iter().map(|name| font::width(name, EM)).max().unwrap_or(0).min(WIDEST) + 2 * APART;
    let columns = ((right - left) / widest).max(1) as usize;
    let columns = columns.max(names.len().div_ceil(LIST_ROWS));
    let widest = widest.min((right - left) / columns as i32);
    let rows = names.len().div_ceil(columns);
    let list = names
        .iter()
        .enumerate()
        .map(|(index, name)| Label {
            left: left + (index / rows) as i32 * widest,
            row: rows - 1 - index % rows,
            text: font::fit(name, EM, widest - 2 * APART),
        })
        .collect();
    Placement::Numbered { numbers, list, rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(x: i32, name: &str) -> Mark {
        Mark { x, name: name.to_owned(), time: "1.23 s".to_owned() }
    }

    /// No label overlaps another, stands over a line that goes up past it, or leaves the edges.
    fn check(marks: &[Mark], left: i32, right: i32) -> Placement {
        let placement = place(marks, left, right);
        let labels = match &placement {
            Placement::Beside(labels, rows) => {
                for (index, label) in labels.iter().enumerate() {
                    assert!(label.row < *rows);
                    for (line, other) in labels.iter().enumerate() {
                        let over =
                            label.left < marks[line].x && marks[line].x < label.left + font::width(&label.text, EM);
                        assert!(index == line || !over || label.row > other.row, "{label:?} hides {other:?}");
                    }
                }
                labels
            }
            Placement::Numbered { numbers, list, .. } => {
                assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] >= NUMBER));
                assert!(numbers.iter().all(|x| left <= *x && *x <= right));
                list
            }
        };
        assert_eq!(labels.len(), marks.len());
        for (index, label) in labels.iter().enumerate() {
            let end = label.left + font::width(&label.text, EM);
            assert!(left <= label.left && end <= right, "{label:?} leaves the picture");
            for other in &labels[..index] {
                let other_end = other.left + font::width(&other.text, EM);
                assert!(label.row != other.row || other_end <= label.left || end <= other.left, "{label:?} {other:?}");
            }
        }
        placement
    }

    #[test]
    fn few_marks_stand_beside_their_lines() {
        let marks = [mark(300, "mapping_available"), mark(900, "module_populated"), mark(2200, "first_response")];
        let Placement::Beside(labels, rows) = check(&marks, 100, 2300) else { panic!("they fit") };
        assert_eq!(rows, 1);
        assert!(labels[0].left > 300 && labels[2].left < 2200);
    }

    #[test]
    fn marks_at_one_time_are_stacked_in_their_order() {
        let marks = [mark(700, "first"), mark(700, "second"), mark(700, "third")];
        let placement = check(&marks, 100, 2300);
        let Placement::Beside(labels, rows) = placement else { panic!("they fit") };
        assert_eq!(rows, 2, "one of them goes to the other side");
        let same_side: Vec<_> = labels.iter().filter(|label| label.left > 700).collect();
        assert!(same_side.windows(2).all(|pair| pair[0].row > pair[1].row), "{labels:?}");
    }

    #[test]
    fn no_number_of_marks_breaks_the_rules() {
        // A fixed sequence, so that a failure can be repeated.
        let mut seed = 12345u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for count in [1, 2, 3, 5, 8, 9, 10, 15, 40] {
            for _ in 0..8 {
                let mut marks: Vec<Mark> = (0..count)
                    .map(|_| mark(100 + random(2200) as i32, &"name_of_a_stage_".repeat(1 + random(4) as usize)))
                    .collect();
                marks.sort_by_key(|mark| mark.x);
                check(&marks, 100, 2300);
            }
            let together: Vec<Mark> = (0..count).map(|_| mark(2300, &"x".repeat(300))).collect();
            check(&together, 100, 2300);
        }
    }
}
