//! Axes: where a value stands, and which values get a label.

use crate::units::{self, ByteUnit};

/// Time along the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeAxis {
    /// Nanoseconds since start, at the left and right edges.
    pub from: i64,
    pub to: i64,
    pub left: i32,
    pub right: i32,
}

impl TimeAxis {
    /// Where a time stands; times outside stand at the edge.
    pub fn x(&self, t: i64) -> i32 {
        let span = (self.to - self.from) as f64;
        let done = (t.saturating_sub(self.from) as f64 / span).clamp(0.0, 1.0);
        self.left + (f64::from(self.right - self.left) * done).round() as i32
    }

    fn unit(&self) -> (f64, &'static str) {
        match (self.to - self.from) as f64 {
            span if span < 2e3 => (1.0, "ns"),
            span if span < 2e6 => (1e3, "µs"),
            span if span < 1e9 => (1e6, "ms"),
            // As the tables have it, also where it is a matter of minutes.
            span if span < 3.0 * 3600e9 => (1e9, "s"),
            _ => (3600e9, "h"),
        }
    }

    /// A time in the axis's unit, as exact as two neighbouring pixels differ.
    pub fn label(&self, t: i64) -> String {
        let (unit, name) = self.unit();
        let pixel = (self.to - self.from) as f64 / unit / f64::from((self.right - self.left).max(1));
        let digits = if unit == 1.0 { 0 } else { (-pixel.log10()).ceil().clamp(0.0, 6.0) as usize };
        format!("{:.digits$} {name}", t as f64 / unit)
    }

    /// The times to label.
    pub fn ticks(&self) -> Vec<(i64, String)> {
        let (unit, name) = self.unit();
        let span = (self.to - self.from) as f64;
        let step = decimal_step(span / unit / 10.0);
        // There is nothing between two nanoseconds.
        let step = if unit == 1.0 { step.max(1.0) } else { step };
        let first = (self.from as f64 / unit / step).ceil() as i64;
        let last = (self.to as f64 / unit / step).floor() as i64;
        let ticks = (first..=last).map(|n| {
            let value = n as f64 * step;
            ((value * unit).round() as i64, format!("{} {name}", decimal(value, step)))
        });
        ticks.collect()
    }
}

/// What a vertical axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Bytes,
    BytesPerSecond,
    PerSecond,
}

/// Values up the picture, from 0.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueAxis {
    pub top: i32,
    pub bottom: i32,
    pub largest: f64,
    /// No value is over 0: then nothing but 0 has a label.
    nothing: bool,
    quantity: Quantity,
}

impl ValueAxis {
    /// An axis with room for `largest`, and some air above it.
    pub fn new(quantity: Quantity, largest: f64, top: i32, bottom: i32) -> ValueAxis {
        let nothing = largest <= 0.0;
        let largest = if nothing { 1.0 } else { largest * 1.1 };
        ValueAxis { top, bottom, largest, nothing, quantity }
    }

    /// An axis that ends at `largest`.
    pub fn exactly(quantity: Quantity, largest: f64, top: i32, bottom: i32) -> ValueAxis {
        ValueAxis { top, bottom, largest: largest.max(1.0), nothing: largest <= 0.0, quantity }
    }

    /// Where a value stands.
    pub fn y(&self, value: f64) -> i32 {
        self.bottom - (f64::from(self.bottom - self.top) * (value / self.largest).clamp(0.0, 1.0)).round() as i32
    }

    /// The values to label, with their labels; the last one names the unit.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let wanted = if self.bottom - self.top > 250 { 5.0 } else { 3.0 };
        let (unit, name, step) = match self.quantity {
            Quantity::Bytes | Quantity::BytesPerSecond => {
                let ByteUnit { name, bytes } = units::byte_unit(self.largest as u64);
                let unit = bytes as f64;
                // Powers of two, as sizes of models and caches are.
                let step = (self.largest / unit / wanted).log2().ceil().exp2();
                (unit, name, if name == "B" { step.max(1.0) } else { step })
            }
            Quantity::PerSecond => {
                let (unit, name) = match self.largest {
                    v if v >= 1e9 => (1e9, "G"),
                    v if v >= 1e6 => (1e6, "M"),
                    v if v >= 1e3 => (1e3, "k"),
                    _ => (1.0, ""),
                };
                (unit, name, decimal_step(self.largest / unit / wanted))
            }
        };
        let last = if self.nothing { 0 } else { (self.largest / unit / step).floor() as u32 };
        (0..=last)
            .map(|n| {
                let value = f64::from(n) * step;
                let label = decimal(value, step);
                let label = match self.quantity {
                    _ if n == 0 => label,
                    Quantity::Bytes => format!("{label} {name}"),
                    Quantity::BytesPerSecond => format!("{label} {name}/s"),
                    Quantity::PerSecond => format!("{label}{name}/s"),
                };
                (value * unit, label)
            })
            .collect()
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least `least`.
fn decimal_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(power)
}

/// A value with as many digits behind the point as its step needs.
fn decimal(value: f64, step: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = (0..6).find(|digits| (step * 10f64.powi(*digits)).fract().abs() < 1e-6).unwrap_or(6) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_0_all_along_has_no_scale() {
        for quantity in [Quantity::Bytes, Quantity::BytesPerSecond, Quantity::PerSecond] {
            assert_eq!(ValueAxis::new(quantity, 0.0, 0, 100).ticks(), [(0.0, "0".to_owned())]);
        }
    }

    #[test]
    fn time_is_labelled_in_its_own_unit() {
        let axis = TimeAxis { from: 0, to: 3_200_000_000, left: 100, right: 1100 };
        assert_eq!(axis.ticks()[1], (500_000_000, "0.5 s".to_owned()));
        assert_eq!(axis.label(1_342_499_999), "1.342 s");
        assert_eq!((axis.x(0), axis.x(1_600_000_000), axis.x(3_200_000_000), axis.x(i64::MAX)), (100, 600, 1100, 1100));
        // Twenty minutes are seconds, as in every table.
        let axis = TimeAxis { from: 0, to: 1_184_000_000_000, left: 0, right: 2000 };
        assert_eq!((axis.label(67_000_000_000), axis.ticks()[1].1.as_str()), ("67.0 s".to_owned(), "200 s"));
        let ticks = TimeAxis { from: -10_000_000, to: 90_000_000, left: 0, right: 10 }.ticks();
        assert_eq!(ticks[0], (-10_000_000, "-10 ms".to_owned()));
    }

    #[test]
    fn bytes_are_labelled_in_powers_of_two() {
        let labels = |largest| -> Vec<String> {
            ValueAxis::new(Quantity::Bytes, largest, 0, 400).ticks().into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(268_435_456.0), ["0", "64 MiB", "128 MiB", "192 MiB", "256 MiB"]);
        assert_eq!(labels(1.2 * 1_073_741_824.0), ["0", "0.5 GiB", "1.0 GiB"]);
        assert_eq!(labels(0.0), ["0"]);
    }

    #[test]
    fn every_size_of_value_gets_a_few_ticks() {
        for quantity in [Quantity::Bytes, Quantity::BytesPerSecond, Quantity::PerSecond] {
            let mut largest = 1e-3;
            while largest < 1e19 {
                let ticks = ValueAxis::new(quantity, largest, 0, 400).ticks().len();
                assert!((1..=8).contains(&ticks), "{quantity:?} {largest}: {ticks}");
                largest *= 1.7;
            }
        }
    }
}
