//! Times as they are written on the command line.

use std::fs;

use stoa_model::{Invalid, Spread};

/// A length of time in milliseconds: `25ms`, `0.2ms`, `200us`, `1.5s`. Without a unit it is milliseconds.
pub(crate) fn milliseconds(text: &str) -> Result<f64, String> {
    let end = text.trim_end_matches(|character: char| character.is_alphabetic()).len();
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "ms" | "" => 1.0,
        "us" => 1e-3,
        "s" => 1e3,
        _ => return Err(format!("{unit} is no unit of time: it is us, ms or s")),
    };
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value * factor),
        _ => Err(format!("`{text}` is no time, such as 25ms, 200us or 1.5s")),
    }
}

/// A time that varies: one time, `uniform:LOW,HIGH`, `normal:MEAN,DEVIATION`, `lognormal:MEAN,DEVIATION`,
/// `exponential:FLOOR,EXCESS`, or `samples:FILE` with one time a line.
pub(crate) fn spread(text: &str) -> Result<Spread, String> {
    let said = |error: Invalid| format!("`{text}`: {error}");
    let Some((kind, rest)) = text.split_once(':') else {
        return Spread::constant(milliseconds(text)?).map_err(said);
    };
    if kind == "samples" {
        return samples(rest);
    }
    let make: fn(f64, f64) -> Result<Spread, Invalid> = match kind {
        "uniform" => Spread::uniform,
        "normal" => Spread::normal,
        "lognormal" => Spread::lognormal,
        "exponential" => Spread::exponential,
        _ => {
            return Err(format!(
                "`{kind}` is no kind of spread: it is uniform, normal, lognormal, exponential or samples"
            ));
        }
    };
    let (one, other) =
        rest.split_once(',').ok_or_else(|| format!("`{text}` needs two times with a comma between them"))?;
    make(milliseconds(one)?, milliseconds(other)?).map_err(said)
}

fn samples(file: &str) -> Result<Spread, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
    let mut measured = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let time = milliseconds(line.trim()).map_err(|error| format!("{file}:{}: {error}", index + 1))?;
        measured.push(time);
    }
    Spread::samples(&measured).map_err(|error| format!("{file}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(milliseconds("25ms"), Ok(25.0));
        assert_eq!(milliseconds("0.5"), Ok(0.5));
        assert_eq!(milliseconds("200us"), Ok(0.2));
        assert_eq!(milliseconds("1.5s"), Ok(1500.0));
        for wrong in ["", "ms", "-1ms", "1m", "inf", "nan", "1 2ms", "5mss"] {
            assert!(milliseconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spreads_have_kinds() {
        assert_eq!(spread("10ms"), Ok(Spread::constant(10.0).unwrap()));
        assert_eq!(spread("uniform:5ms,15"), Ok(Spread::uniform(5.0, 15.0).unwrap()));
        assert_eq!(spread("exponential:1s,1ms"), Ok(Spread::exponential(1000.0, 1.0).unwrap()));
        for wrong in ["uniform:5", "uniform:5,4", "lognormal:0,1", "gauss:1,2", "samples:/nowhere"] {
            assert!(spread(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn samples_come_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rtt");
        fs::write(&file, "1\n2ms\n\n3000us\n").unwrap();
        let name = file.display().to_string();
        assert_eq!(spread(&format!("samples:{name}")), Ok(Spread::samples(&[1.0, 2.0, 3.0]).unwrap()));
        fs::write(&file, "1\nx\n").unwrap();
        assert!(spread(&format!("samples:{name}")).unwrap_err().starts_with(&format!("{name}:2: ")));
        fs::write(&file, "\n").unwrap();
        assert!(spread(&format!("samples:{name}")).is_err());
    }
}
