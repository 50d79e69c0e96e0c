//! Curves as SVG, from the JSON of a comparison: both axes are logarithmic, colours follow the reader's light or dark.

use std::fmt::Write as _;

use serde_json::Value;

use super::table::{list, text};

const WIDTH: f64 = 720.0;
/// Of the field with the curves.
const LEFT: f64 = 76.0;
const RIGHT: f64 = 700.0;
const FIELD: f64 = 270.0;
/// Of the title, and of each line of the legend.
const TITLE: f64 = 34.0;
const LINE: f64 = 20.0;

const STYLE: &str = "\
    text { font: 13px system-ui, sans-serif; fill: #24292f; }
    .page { fill: #ffffff; stroke: #d1d9e0; }
    .title { font-size: 15px; font-weight: 600; }
    .tick { font-size: 12px; fill: #57606a; }
    .grid { stroke: #d1d9e0; stroke-width: 1; }
    .curve { fill: none; stroke-width: 2; }
    .c0 { stroke: #0969da; } .p0 { fill: #0969da; }
    .c1 { stroke: #bc4c00; stroke-dasharray: 7 3; } .p1 { fill: #bc4c00; }
    .c2 { stroke: #1a7f37; stroke-dasharray: 2 3; } .p2 { fill: #1a7f37; }
    .c3 { stroke: #8250df; stroke-dasharray: 10 3 2 3; } .p3 { fill: #8250df; }
    .c4 { stroke: #bf3989; stroke-dasharray: 4 4; } .p4 { fill: #bf3989; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .page { fill: #0d1117; stroke: #3d444d; }
      .tick { fill: #9198a1; }
      .grid { stroke: #30363d; }
      .c0 { stroke: #58a6ff; } .p0 { fill: #58a6ff; }
      .c1 { stroke: #f0883e; } .p1 { fill: #f0883e; }
      .c2 { stroke: #3fb950; } .p2 { fill: #3fb950; }
      .c3 { stroke: #bc8cff; } .p3 { fill: #bc8cff; }
      .c4 { stroke: #f778ba; } .p4 { fill: #f778ba; }
    }";

/// One axis: from the power or half step below the least value to the one above the greatest.
struct Axis {
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (least, most) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
        if most <= 0.0 {
            return Self { from: 1.0, to: 10.0, ticks: vec![1.0, 10.0] };
        }
        let lowest = least.log10().floor() as i32;
        let steps: Vec<f64> = (lowest..=most.log10().ceil() as i32)
            .flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * ten(power)))
            .collect();
        // A hair of slack: a power of ten as it is written may differ from the one that is computed.
        let from = steps.iter().copied().filter(|step| *step <= least * 1.000_1).fold(ten(lowest), f64::max);
        let to =
            steps.iter().copied().filter(|step| *step >= most / 1.000_1 && *step > from).fold(f64::INFINITY, f64::min);
        let wide = to / from > 200.0;
        let ticks = steps.into_iter().filter(|step| (from..=to).contains(step) && (!wide || is_power(*step))).collect();
        Self { from, to, ticks }
    }

    /// Where a value is: 0 to 1.
    fn at(&self, value: f64) -> f64 {
        (value / self.from).ln() / (self.to / self.from).ln()
    }
}

fn ten(power: i32) -> f64 {
    10_f64.powi(power)
}

fn is_power(value: f64) -> bool {
    (value.log10() - value.log10().round()).abs() < 1e-6
}

/// One curve: its name and its points.
struct Curve<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
}

/// The picture of a chart of a section.
pub(super) fn svg(section: &Value, chart: &Value) -> String {
    let curves: Vec<Curve<'_>> = list(&chart["curves"]).iter().map(|curve| points(section, curve)).collect();
    let points = || curves.iter().flat_map(|curve| curve.points.iter());
    let (x, y) = (Axis::over(points().map(|point| point.0)), Axis::over(points().map(|point| point.1)));
    let rows = curves.len().div_ceil(2);
    let top = TITLE + LINE * rows as f64 + 10.0;
    let (bottom, height) = (top + FIELD, top + FIELD + 52.0);
    let across = |value: f64| LEFT + x.at(value) * (RIGHT - LEFT);
    let up = |value: f64| bottom - y.at(value) * FIELD;
    let title = escaped(text(&chart["title"]));
    let (below, beside) = (escaped(text(&chart["x"])), escaped(text(&chart["y"])));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{title}\">\n  <style>\n{STYLE}\n  </style>\n  <rect class=\"page\" x=\"0.5\" y=\"0.5\" \
         width=\"{}\" height=\"{}\" rx=\"8\"/>\n  <text class=\"title\" x=\"{LEFT}\" y=\"24\">{title}</text>\n",
        WIDTH - 1.0,
        height - 1.0,
    );
    for (at, curve) in curves.iter().enumerate() {
        let (left, line) = (LEFT + 312.0 * (at % 2) as f64, TITLE + LINE * (at / 2) as f64 + 10.0);
        let _ = writeln!(
            svg,
            "  <path class=\"curve c{at}\" d=\"M{left},{line} h30\"/><circle class=\"p{at}\" cx=\"{}\" cy=\"{line}\" r=\"3\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            left + 15.0,
            left + 38.0,
            line + 4.5,
            escaped(curve.name),
        );
    }
    for tick in &x.ticks {
        let (at, name) = (across(*tick), short(*tick));
        let _ = writeln!(
            svg,
            "  <path class=\"grid\" d=\"M{at:.1},{top} V{bottom}\"/><text class=\"tick\" x=\"{at:.1}\" y=\"{}\" \
             text-anchor=\"middle\">{name}</text>",
            bottom + 18.0,
        );
    }
    for tick in &y.ticks {
        let (at, name) = (up(*tick), short(*tick));
        let _ = writeln!(
            svg,
            "  <path class=\"grid\" d=\"M{LEFT},{at:.1} H{RIGHT}\"/><text class=\"tick\" x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{name}</text>",
            LEFT - 8.0,
            at + 4.0,
        );
    }
    let _ = writeln!(
        svg,
        "  <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{below}</text>\n  <text x=\"20\" y=\"{}\" text-anchor=\"middle\" \
         transform=\"rotate(-90 20 {})\">{beside}</text>",
        f64::midpoint(LEFT, RIGHT),
        bottom + 40.0,
        top + FIELD / 2.0,
        top + FIELD / 2.0,
    );
    for (at, curve) in curves.iter().enumerate() {
        let places: Vec<(f64, f64)> = curve.points.iter().map(|(x, y)| (across(*x), up(*y))).collect();
        let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(svg, "  <polyline class=\"curve c{at}\" points=\"{}\"/>", line.join(" "));
        for (x, y) in places {
            let _ = writeln!(svg, "  <circle class=\"p{at}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
    }
    svg + "</svg>\n"
}

/// The points of a curve, from left to right; missing values and zeros are left out.
fn points<'a>(section: &Value, curve: &'a Value) -> Curve<'a> {
    let metric = text(&curve["metric"]);
    let points = list(&section["rows"]).iter().filter_map(|row| {
        let point = (row["median"]["x"].as_f64()?, row["median"][metric].as_f64()?);
        (point.0 > 0.0 && point.1 > 0.0).then_some(point)
    });
    let mut points: Vec<(f64, f64)> = points.collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    Curve { name: text(&curve["name"]), points }
}

fn short(value: f64) -> String {
    match value {
        value if value >= 999_999.0 => format!("{:.0} M", value / 1e6),
        value if value >= 999.0 => format!("{:.0} k", value / 1e3),
        value if value >= 0.999 => format!("{value:.0}"),
        value => format!("{}", (value * 1e6).round() / 1e6),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_axis_ends_at_steps_and_has_ticks_that_can_be_read() {
        let axis = Axis::over([3.0, 40.0].into_iter());
        assert_eq!((axis.from, axis.to), (2.0, 50.0));
        assert_eq!(axis.ticks, [2.0, 5.0, 10.0, 20.0, 50.0]);
        let wide = Axis::over([1.0, 1e6].into_iter());
        assert_eq!((wide.ticks.len(), wide.at(1.0), wide.at(1e6)), (7, 0.0, 1.0));
        let flat = Axis::over([10.0].into_iter());
        assert_eq!((flat.from, flat.to), (10.0, 20.0));
    }

    #[test]
    fn a_curve_has_a_point_for_each_row_that_was_measured() {
        let row = |x: f64, y: Value| json!({ "median": { "x": x, "m": y } });
        let section = json!({ "rows": [row(1.0, json!(10.0)), row(10.0, Value::Null), row(100.0, json!(1000.0))] });
        let chart = json!({ "title": "a < b", "x": "x", "y": "y", "curves": [{ "metric": "m", "name": "n" }] });
        let picture = svg(&section, &chart);
        assert!(picture.contains("points=\"76.0,334.0 700.0,64.0\""), "{picture}");
        assert!(picture.contains("a &lt; b") && picture.contains(">1 k</text>"), "{picture}");
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!([0.05, 1.0, 500.0, 2e4, 1e6].map(short), ["0.05", "1", "500", "20 k", "1 M"]);
    }
}
