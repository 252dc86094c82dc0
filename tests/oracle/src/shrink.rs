//! Makes a stream with a difference short (delta debugging).

use crate::generate::Step;
use crate::pair::{Difference, Pair, Stop};

/// Something that runs a stream on fresh servers.
pub trait Trial {
    /// Two servers without a trace of an earlier run.
    ///
    /// # Errors
    /// When they cannot be started.
    fn fresh(&mut self) -> Result<Pair, String>;
}

/// Runs `steps` on fresh servers.
fn differs(trial: &mut impl Trial, steps: &[Step]) -> Result<Option<Box<Difference>>, String> {
    let mut pair = trial.fresh()?;
    let outcome = steps.iter().try_for_each(|step| pair.step(step.clone())).and_then(|()| pair.finish());
    match outcome {
        Ok(()) => Ok(None),
        Err(Stop::Difference(difference)) => Ok(Some(difference)),
        Err(Stop::Broken(message)) => Err(message),
    }
}

/// Shortens `steps`, whose last one shows a difference. Answers the shortest stream found, and what
/// differs there.
///
/// # Errors
/// When the servers cannot be started, or the difference does not come again.
pub fn shrink(trial: &mut impl Trial, steps: Vec<Step>) -> Result<(Vec<Step>, Box<Difference>), String> {
    let mut best = shortest_tail(trial, steps)?;
    let single: Vec<Step> = best.0.iter().flat_map(one_by_one).collect();
    if let Some(difference) = differs(trial, &single)? {
        best = (single, difference);
    }
    let mut chunk = best.0.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < best.0.len() {
            let mut candidate = best.0.clone();
            candidate.drain(at..(at + chunk).min(candidate.len()));
            match differs(trial, &candidate)? {
                Some(difference) => best = (candidate, difference),
                None => at += chunk,
            }
        }
        chunk /= 2;
    }
    Ok(best)
}

/// Most differences need little of what came before: the last steps alone are tried first.
fn shortest_tail(trial: &mut impl Trial, steps: Vec<Step>) -> Result<(Vec<Step>, Box<Difference>), String> {
    let mut len = 8;
    while len < steps.len() {
        let tail = &steps[steps.len() - len..];
        if let Some(difference) = differs(trial, tail)? {
            return Ok((tail.to_vec(), difference));
        }
        len *= 4;
    }
    let difference = differs(trial, &steps)?.ok_or("the difference does not come again on fresh servers")?;
    Ok((steps, difference))
}

/// A burst as single requests.
fn one_by_one(step: &Step) -> Vec<Step> {
    match step {
        Step::Burst { slot, calls } => {
            calls.iter().map(|call| Step::Burst { slot: *slot, calls: vec![call.clone()] }).collect()
        }
        other => vec![other.clone()],
    }
}
