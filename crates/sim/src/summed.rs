//! Sums of what runs have come to.

/// What two of a kind come to together: the sum of each of these fields. The others are as in none.
macro_rules! summed {
    ($kind:ident { $($field:ident),* $(,)? } $($rest:tt)*) => {
        impl std::ops::Add for $kind {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $($field: self.$field + other.$field,)* $($rest)* }
            }
        }
    };
}
