//! The standard normal distribution.

/// The value below which a standard normal variable is with probability `p`, which lies between 0 and 1.
///
/// Acklam's rational approximations, one for the middle and one for the tails: the relative error is below
/// 1.2e-9.
pub(crate) fn quantile(p: f64) -> f64 {
    const TAIL: f64 = 0.02425;
    if p < TAIL {
        tail((-2.0 * p.ln()).sqrt())
    } else if p > 1.0 - TAIL {
        -tail((-2.0 * (1.0 - p).ln()).sqrt())
    } else {
        middle(p - 0.5)
    }
}

fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

fn middle(q: f64) -> f64 {
    const ABOVE: [f64; 6] = [
        -3.969683028665376e+01,
        2.209460984245205e+02,
        -2.759285104469687e+02,
        1.38357751867269e+02,
        -3.066479806614716e+01,
        2.506628277459239e+00,
    ];
    const BELOW: [f64; 6] = [
        -5.447609879822406e+01,
        1.615858368580409e+02,
        -1.556989798598866e+02,
        6.680131188771972e+01,
        -1.328068155288572e+01,
        1.0,
    ];
    let r = q * q;
    q * polynomial(&ABOVE, r) / polynomial(&BELOW, r)
}

fn tail(q: f64) -> f64 {
    const ABOVE: [f64; 6] = [
        -7.784894002430293e-03,
        -3.223964580411365e-01,
        -2.400758277161838e+00,
        -2.549732539343734e+00,
        4.374664141464968e+00,
        2.938163982698783e+00,
    ];
    const BELOW: [f64; 5] =
        [7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00, 1.0];
    polynomial(&ABOVE, q) / polynomial(&BELOW, q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let known =
            [(0.5, 0.0), (0.975, 1.959963984540054), (0.999, 3.090232306167813), (1e-6, -4.753424308822899)];
        for (p, z) in known {
            assert!((quantile(p) - z).abs() < 1e-7, "{p}: {}", quantile(p));
            assert!((quantile(1.0 - p) + z).abs() < 1e-7, "{}", 1.0 - p);
        }
    }
}
