//! No operation costs more than its size times a logarithm.
//!
//! Each operation of the table is carried out at a size and at four times that size, and its instructions are
//! counted, not its time: so the result is the same on every machine, however busy. `cargo xtask cost` runs
//! all; `cargo run --release -p stoa-cost WORD` those with the word in their names. It takes Valgrind.
//!
//! An operation is a line in one of the modules, with what is set up before, outside of the count.
#![allow(clippy::print_stdout, reason = "it is a program for the terminal")]

mod acls;
mod ask;
mod count;
mod deep;
mod many;
mod outstanding;
mod partitions;
mod programs;
mod quotas;
mod sessions;
mod stored;
mod watches;
mod wide;
mod world;

use std::process::ExitCode;

/// How what an operation costs may grow with the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Growth {
    /// With the size, times a logarithm.
    Linear,
    /// Hardly: the size is that of the state around, and the operation is as small as before.
    Constant,
}

impl Growth {
    /// The largest factor that is allowed when the size doubles. What costs the size times its logarithm, and nothing
    /// besides, grows by 2.24 from 250 on, and by 2.21 from 500 on.
    fn limit(self) -> f64 {
        match self {
            Self::Linear => 2.25,
            Self::Constant => 1.12,
        }
    }
}

/// One line of the table.
struct Operation {
    name: &'static str,
    growth: Growth,
    /// The smaller of the two sizes.
    size: usize,
    /// Sets up what there is of a size, and hands what is counted to [`count::counted`], once.
    run: fn(usize),
}

const fn linear(name: &'static str, size: usize, run: fn(usize)) -> Operation {
    Operation { name, growth: Growth::Linear, size, run }
}

const fn constant(name: &'static str, size: usize, run: fn(usize)) -> Operation {
    Operation { name, growth: Growth::Constant, size, run }
}

fn table() -> impl Iterator<Item = &'static Operation> {
    [
        deep::OPERATIONS,
        wide::OPERATIONS,
        watches::OPERATIONS,
        sessions::OPERATIONS,
        acls::OPERATIONS,
        quotas::OPERATIONS,
        outstanding::OPERATIONS,
        programs::OPERATIONS,
        partitions::OPERATIONS,
        stored::OPERATIONS,
        many::OPERATIONS,
    ]
    .into_iter()
    .flatten()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, attempt, name, sizes @ ..] = arguments.as_slice()
        && word == count::CARRY_OUT
    {
        let attempt = attempt.parse().expect("an attempt is a number");
        let operation = table().find(|operation| operation.name == name).expect("the table has it");
        let sizes: Vec<usize> = sizes.iter().map(|size| size.parse().expect("a size is a number")).collect();
        let sizes = if sizes.is_empty() { count::sizes(operation.size).into() } else { sizes };
        count::elsewhere(attempt, || sizes.into_iter().for_each(operation.run));
        return ExitCode::SUCCESS;
    }
    let wanted = |name: &str| arguments.iter().all(|word| name.contains(word.as_str()));
    match count::all(table().filter(|operation| wanted(operation.name)).collect()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("stoa-cost: {error}");
            ExitCode::from(2)
        }
    }
}
