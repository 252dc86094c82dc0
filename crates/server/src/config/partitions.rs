//! How many partitions a server is to have.

use std::num::NonZero;

use super::kind::Kind;

/// Most partitions that a server can have.
pub const PARTITIONS_MAX: u8 = 64;

/// How many partitions a server is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitions {
    /// As many as the machine has cores, when the data folder is made; later what that has.
    Auto,
    /// So many, and no other number.
    Exactly(u8),
}

impl Partitions {
    /// How many a new data folder gets.
    pub fn of_new_folder(self) -> u8 {
        match self {
            Partitions::Auto => {
                let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
                u8::try_from(cores).unwrap_or(PARTITIONS_MAX).min(PARTITIONS_MAX)
            }
            Partitions::Exactly(number) => number,
        }
    }
}

/// A number of partitions.
pub(super) struct PartitionCount;
impl Kind for PartitionCount {
    type Value = Partitions;
    const PLACEHOLDER: &'static str = "N|auto";
    const EXPECTED: &'static str = "a number from 1 to 64, or auto";
    fn parse(text: &str) -> Option<Partitions> {
        if text.eq_ignore_ascii_case("auto") {
            return Some(Partitions::Auto);
        }
        let number = text.parse().ok().filter(|number| (1..=PARTITIONS_MAX).contains(number));
        number.map(Partitions::Exactly)
    }
    fn show(value: &Partitions) -> String {
        match value {
            Partitions::Auto => "auto".to_owned(),
            Partitions::Exactly(number) => number.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_partitions_is_1_to_64_or_left_to_the_machine() {
        for (text, number) in [("1", 1), ("4", 4), ("64", 64)] {
            let parsed = PartitionCount::parse(text);
            assert_eq!(parsed, Some(Partitions::Exactly(number)));
            assert_eq!(PartitionCount::show(&Partitions::Exactly(number)), text);
        }
        for wrong in ["0", "65", "-1", "256", "", "all", "2.5"] {
            assert_eq!(PartitionCount::parse(wrong), None, "{wrong}");
        }
        assert_eq!(PartitionCount::parse("auto"), Some(Partitions::Auto));
        assert!((1..=PARTITIONS_MAX).contains(&Partitions::Auto.of_new_folder()));
    }
}
