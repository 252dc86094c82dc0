//! How many tests passed and failed, read from what the suites print.

use std::ops::AddAssign;

/// A count of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    /// For a step that counts nothing itself.
    pub(crate) fn one(passed: bool) -> Tally {
        Tally { passed: u64::from(passed), failed: u64::from(!passed) }
    }

    /// A suite whose program failed has failed, whatever it printed; and a suite that ran nothing
    /// has not passed.
    pub(crate) fn judged(self, succeeded: bool) -> Tally {
        if self.failed == 0 && (!succeeded || self.passed == 0) { Tally { failed: 1, ..self } } else { self }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// `test result: ok. 3 passed; 1 failed; 0 ignored; ...`, one for each test binary.
pub(crate) fn cargo(output: &str) -> Tally {
    let mut tally = Tally::default();
    for line in output.lines().filter_map(|line| line.trim().strip_prefix("test result: ")) {
        tally += counted(line);
    }
    tally
}

/// The last line of a suite that speaks plainly, such as `3 passed, 1 failed`, or of pytest, such
/// as `== 1 failed, 3 passed, 2 deselected in 4.00s ==`.
pub(crate) fn plain(output: &str) -> Tally {
    output.lines().rev().map(counted).find(|tally| *tally != Tally::default()).unwrap_or_default()
}

/// `Tests run: 5, Failures: 1, Errors: 1, Skipped: 0`: Surefire repeats it for each class, the
/// line without a time is the sum.
pub(crate) fn surefire(output: &str) -> Tally {
    let sum = output
        .lines()
        .rev()
        .filter(|line| !line.contains("Time elapsed"))
        .find_map(|line| line.split_once("Tests run: "));
    let Some((_, sum)) = sum else { return Tally::default() };
    let numbers: Vec<u64> = sum
        .split(|character: char| !character.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect();
    let &[run, failures, errors, skipped] = numbers.as_slice() else { return Tally::default() };
    let failed = failures + errors;
    Tally { passed: run.saturating_sub(failed + skipped), failed }
}

/// `--- PASS: TestName (0.01s)`, subtests not counted.
pub(crate) fn go(output: &str) -> Tally {
    let count = |prefix: &str| output.lines().filter(|line| line.starts_with(prefix)).count() as u64;
    Tally { passed: count("--- PASS:"), failed: count("--- FAIL:") }
}

/// Numbers in front of the words `passed`, `failed` and `errors`.
fn counted(line: &str) -> Tally {
    let words: Vec<&str> = line
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let mut tally = Tally::default();
    for pair in words.windows(2) {
        let [number, word] = pair else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match *word {
            "passed" => tally.passed += number,
            "failed" | "error" | "errors" => tally.failed += number,
            _ => {}
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_results_are_added_up() {
        let output = "running 3 tests\ntest result: ok. 3 passed; 0 failed; 0 ignored; 0 measured\n\
                      test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured\n";
        assert_eq!(cargo(output), Tally { passed: 4, failed: 2 });
    }

    #[test]
    fn the_last_line_with_counts_is_taken() {
        assert_eq!(plain("1 passed, 9 failed\n12 passed, 1 failed\nbye\n"), Tally { passed: 12, failed: 1 });
        let pytest = "=== 2 failed, 300 passed, 4 skipped, 1 error in 93.11s (0:01:33) ===\n";
        assert_eq!(plain(pytest), Tally { passed: 300, failed: 3 });
        assert_eq!(plain("nothing here"), Tally::default());
    }

    #[test]
    fn surefire_takes_the_sum_and_not_a_class() {
        let output = "[INFO] Tests run: 2, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 1.1 s - in A\n\
                      [ERROR] Tests run: 9, Failures: 1, Errors: 2, Skipped: 1\n\
                      [INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 1.1 s - in B\n";
        assert_eq!(surefire(output), Tally { passed: 5, failed: 3 });
    }

    #[test]
    fn go_counts_top_level_tests() {
        let output =
            "=== RUN TestA\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/x (0.00s)\n--- FAIL: TestB (1s)\n";
        assert_eq!(go(output), Tally { passed: 1, failed: 1 });
    }

    #[test]
    fn a_failed_program_or_an_empty_run_is_a_failure() {
        assert_eq!(Tally { passed: 3, failed: 0 }.judged(true), Tally { passed: 3, failed: 0 });
        assert_eq!(Tally { passed: 3, failed: 0 }.judged(false), Tally { passed: 3, failed: 1 });
        assert_eq!(Tally { passed: 3, failed: 2 }.judged(false), Tally { passed: 3, failed: 2 });
        assert_eq!(Tally::default().judged(true), Tally { passed: 0, failed: 1 });
    }
}
