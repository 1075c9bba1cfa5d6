//! Which tensor a byte of a file belongs to.

/// Finds tensors by byte. They are numbered by their place in what it was made from, and may share bytes.
#[derive(Clone, Debug, Default)]
pub struct Locator {
    /// First byte, end, number; by first byte. Those without a byte are left out.
    tensors: Vec<(u64, u64, usize)>,
    /// The largest end among `tensors[..=i]`.
    reach: Vec<u64>,
}

impl Locator {
    /// From each tensor's first byte and the byte behind its last.
    pub fn new(tensors: impl IntoIterator<Item = (u64, u64)>) -> Locator {
        let tensors = tensors.into_iter().enumerate().map(|(number, (begin, end))| (begin, end, number));
        let mut tensors: Vec<_> = tensors.filter(|(begin, end, _)| begin < end).collect();
        tensors.sort_unstable();
        let mut furthest = 0;
        let reach = tensors
            .iter()
            .map(|(_, end, _)| {
                furthest = furthest.max(*end);
                furthest
            })
            .collect();
        Locator { tensors, reach }
    }

    /// The tensor that a byte belongs to; of several, the one that begins last.
    pub fn at(&self, byte: u64) -> Option<usize> {
        let mut index = self.tensors.partition_point(|(begin, _, _)| *begin <= byte);
        while index > 0 && self.reach[index - 1] > byte {
            index -= 1;
            let (_, end, number) = self.tensors[index];
            if byte < end {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_innermost_goes_first() {
        let locator = Locator::new([(10, 100), (20, 30), (20, 20), (200, 201)]);
        let found: Vec<_> = [9, 10, 20, 29, 30, 99, 100, 200, 201].map(|byte| locator.at(byte)).into();
        assert_eq!(found, [None, Some(0), Some(1), Some(1), Some(0), Some(0), None, Some(3), None]);
    }

    proptest! {
        #[test]
        fn whoever_has_the_byte_is_found(tensors in prop::collection::vec((0u64..50, 0u64..20), 0..12), byte in 0u64..70) {
            let tensors: Vec<_> = tensors.into_iter().map(|(begin, length)| (begin, begin + length)).collect();
            let having = |number: usize| (tensors[number].0..tensors[number].1).contains(&byte);
            match Locator::new(tensors.iter().copied()).at(byte) {
                Some(number) => prop_assert!(having(number)),
                None => prop_assert!(!(0..tensors.len()).any(having)),
            }
        }
    }
}
