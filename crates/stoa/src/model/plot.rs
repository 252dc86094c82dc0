//! Plots as SVG.

use std::fmt::Write as _;

const COLOURS: [&str; 8] =
    ["#1b6ca8", "#b5482a", "#2a7f62", "#8a5fb0", "#c79a1b", "#4a4a4a", "#c2517e", "#5aa9c4"];
const LEFT: f64 = 70.0;
const TOP: f64 = 34.0;
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 320.0;

/// A name and points. Points that are not finite are left out.
pub(super) type Series = (String, Vec<(f64, f64)>);

/// Lines through points.
pub(super) struct Lines {
    pub(super) title: String,
    pub(super) x_title: String,
    pub(super) y_title: String,
    pub(super) series: Vec<Series>,
}

/// A table whose cells have colours by their values.
pub(super) struct Heat {
    pub(super) title: String,
    pub(super) x_title: String,
    pub(super) y_title: String,
    pub(super) columns: Vec<String>,
    /// Names of rows, with the text and value of each cell.
    pub(super) rows: Vec<(String, Vec<(String, f64)>)>,
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Something like `<text x="1.0" ...>what</text>`.
fn text(out: &mut String, x: f64, y: f64, more: &str, what: &str) {
    writeln!(out, r#"<text x="{x:.1}" y="{y:.1}"{more}>{}</text>"#, escape(what))
        .expect("a String takes all");
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, width: u32) {
    let ((x1, y1), (x2, y2)) = (from, to);
    writeln!(
        out,
        r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}" stroke-width="{width}"/>"#
    )
    .expect("a String takes all");
}

fn begin(width: f64, height: f64, title: &str) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, LEFT, 18.0, r#" font-weight="bold""#, title);
    out
}

fn axes(out: &mut String, height: f64, x_title: &str, y_title: &str) {
    let (x, y) = (LEFT + WIDTH / 2.0, TOP + height / 2.0);
    text(out, x, TOP + height + 44.0, r#" text-anchor="middle""#, x_title);
    let turned = format!(r#" text-anchor="middle" transform="rotate(-90 16 {y:.1})""#);
    text(out, 16.0, y, &turned, y_title);
}

/// The distance between marks on an axis of this length: 1, 2 or 5 times a power of ten.
fn step(length: f64) -> f64 {
    let power = 10_f64.powf((length / 5.0).log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors.into_iter().map(|factor| factor * power).find(|step| length / step <= 6.0).unwrap_or(power * 10.0)
}

impl Lines {
    pub(super) fn svg(&self) -> String {
        let series = self.series.iter().map(|(name, points)| {
            let finite = points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite());
            (name, finite.collect::<Vec<_>>())
        });
        let series: Vec<_> = series.collect();
        let largest = |of: fn(&(f64, f64)) -> f64| {
            series.iter().flat_map(|(_, points)| points).map(of).fold(0.0, f64::max).max(1e-9)
        };
        let (x_max, y_max) = (largest(|point| point.0), largest(|point| point.1));
        let place = |x: f64, y: f64| (LEFT + x / x_max * WIDTH, TOP + HEIGHT - y / y_max * HEIGHT);
        let mut out = begin(LEFT + WIDTH + 190.0, TOP + HEIGHT + 56.0, &self.title);
        axes(&mut out, HEIGHT, &self.x_title, &self.y_title);
        for mark in marks(x_max) {
            let (x, bottom) = place(mark, 0.0);
            line(&mut out, (x, TOP), (x, bottom), "#ddd", 1);
            text(&mut out, x, bottom + 18.0, r#" text-anchor="middle""#, &format!("{mark:.4}").trimmed());
        }
        for mark in marks(y_max) {
            let (left, y) = place(0.0, mark);
            line(&mut out, (left, y), (LEFT + WIDTH, y), "#ddd", 1);
            text(&mut out, left - 6.0, y + 4.0, r#" text-anchor="end""#, &format!("{mark:.4}").trimmed());
        }
        for (index, (name, points)) in series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let places = points.iter().map(|(x, y)| place(*x, *y)).map(|(x, y)| format!("{x:.1},{y:.1}"));
            let places = places.collect::<Vec<_>>().join(" ");
            writeln!(out, r#"<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>"#)
                .expect("a String takes all");
            let (x, y) = (LEFT + WIDTH + 12.0, TOP + 8.0 + 18.0 * index as f64);
            line(&mut out, (x, y), (x + 24.0, y), colour, 2);
            text(&mut out, x + 30.0, y + 4.0, "", name);
        }
        out + "</svg>\n"
    }
}

fn marks(max: f64) -> impl Iterator<Item = f64> {
    let step = step(max);
    (0..=(max / step + 1e-9) as u32).map(move |index| f64::from(index) * step)
}

/// A number without zeros at its end.
trait Trimmed {
    fn trimmed(&self) -> String;
}

impl Trimmed for String {
    fn trimmed(&self) -> String {
        if self.contains('.') {
            self.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            self.clone()
        }
    }
}

impl Heat {
    pub(super) fn svg(&self) -> String {
        const ROW: f64 = 34.0;
        let height = ROW * self.rows.len() as f64;
        let column = WIDTH / self.columns.len().max(1) as f64;
        let values = || self.rows.iter().flat_map(|(_, cells)| cells).map(|cell| cell.1.ln_1p());
        let most = values().filter(|value| value.is_finite()).fold(1e-9, f64::max);
        let mut out = begin(LEFT + WIDTH + 20.0, TOP + height + 56.0, &self.title);
        axes(&mut out, height, &self.x_title, &self.y_title);
        for (index, (name, cells)) in self.rows.iter().enumerate() {
            let y = TOP + ROW * index as f64;
            text(&mut out, LEFT - 6.0, y + ROW / 2.0 + 4.0, r#" text-anchor="end""#, name);
            for (index, (what, value)) in cells.iter().enumerate() {
                let (x, part) = (LEFT + column * index as f64, (value.ln_1p() / most).min(1.0));
                let shade = (255.0 - 150.0 * part) as u8;
                writeln!(
                    out,
                    r#"<rect x="{x:.1}" y="{y:.1}" width="{column:.1}" height="{ROW}" fill="rgb(255,{shade},{})"/>"#,
                    shade / 2 + 100
                )
                .expect("a String takes all");
                let more = r#" text-anchor="middle" font-size="11""#;
                text(&mut out, x + column / 2.0, y + ROW / 2.0 + 4.0, more, what);
            }
        }
        for (index, name) in self.columns.iter().enumerate() {
            let x = LEFT + column * (index as f64 + 0.5);
            text(&mut out, x, TOP + height + 18.0, r#" text-anchor="middle""#, name);
        }
        out + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_their_corners_and_leave_out_what_is_infinite() {
        let series = vec![("a<b".to_owned(), vec![(0.0, 0.0), (50.0, f64::INFINITY), (100.0, 8.0)])];
        let svg = Lines { title: "t".into(), x_title: "x".into(), y_title: "y".into(), series }.svg();
        assert!(svg.contains(r#"<polyline points="70.0,354.0 590.0,34.0""#), "{svg}");
        assert!(svg.contains("a&lt;b") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn marks_are_round_numbers() {
        let all = |max| marks(max).collect::<Vec<_>>();
        assert_eq!(all(250.0), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0]);
        assert_eq!(all(8.0), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(format!("{:.4}", 0.5).trimmed(), "0.5");
        assert_eq!(format!("{:.4}", 200.0).trimmed(), "200");
    }

    #[test]
    fn every_cell_has_a_colour() {
        let rows = vec![("r".to_owned(), vec![("1".to_owned(), 1.0), ("never".to_owned(), f64::INFINITY)])];
        let columns = vec!["c".to_owned(), "d".to_owned()];
        let svg = Heat { title: "t".into(), x_title: "x".into(), y_title: "y".into(), columns, rows }.svg();
        assert_eq!(svg.matches("fill=\"rgb(255,105,152)\"").count(), 2, "{svg}");
    }
}
