//! A bar chart of one workload.

use super::row::{Row, digits, ratio};
use super::svg::{LINE, Side, Svg, Width, ticks, wide};

/// In pixels: the height of a bar, of the space below a bar, and of the space between two indexes.
const BAR: f64 = 18.0;
const BELOW: f64 = 4.0;
const BETWEEN: f64 = 12.0;
/// The left and right margin in pixels.
const MARGIN: f64 = 8.0;

/// Draws bars of throughput, grouped by index. Each group has one bar for each thread count, from few threads (light)
/// to many (dark).
pub fn bars(rows: &[&Row], width: Width) -> String {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| group[0].name == row.name) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    // Names are written to the left of their bars, or above them in a narrow chart.
    let beside = width == Width::Wide;
    let above = if beside { 0.0 } else { LINE };
    let names = if beside { rows.iter().map(|row| wide(&row.name)).fold(0.0, f64::max) + MARGIN } else { 0.0 };
    let left = MARGIN + names;
    let right = width.pixels() - MARGIN - rows.iter().map(|row| wide(&label(row))).fold(0.0, f64::max) - MARGIN;
    let tall = |group: &Vec<&Row>| above + group.len() as f64 * (BAR + BELOW) + BETWEEN;
    let bottom = groups.iter().map(tall).sum::<f64>();
    let longest = rows.iter().flat_map(|row| row.speeds()).filter(|speed| speed.is_finite()).fold(1e-9, f64::max);
    let x = |value: f64| left + value.max(0.0) / longest * (right - left);

    let mut svg = Svg::new(width.pixels(), bottom + 2.0 * LINE + MARGIN, "Million operations per second, as bars");
    for (value, text) in ticks(longest, (right - left) / 90.0) {
        svg.line("grid", (x(value), 0.0), (x(value), bottom));
        svg.write(Side::Middle, (x(value), bottom + LINE / 2.0), &text);
    }
    svg.write(Side::Middle, ((left + right) / 2.0, bottom + LINE * 1.5), "Mops/s");
    let mut top = BETWEEN / 2.0;
    for group in &groups {
        let middle = top + group.len() as f64 * (BAR + BELOW) / 2.0 - BELOW / 2.0;
        let (side, place) =
            if beside { (Side::End, (left - MARGIN, middle)) } else { (Side::Start, (left, top + LINE / 2.0)) };
        svg.write(side, place, &group[0].name);
        for (number, row) in group.iter().enumerate() {
            let top = top + above + number as f64 * (BAR + BELOW);
            let strength = 0.45 + 0.55 * (number + 1) as f64 / group.len() as f64;
            bar(&mut svg, row, top, strength, &x);
        }
        top += tall(group);
    }
    svg.line("axis", (left, 0.0), (left, bottom));
    svg.end()
}

/// Draws a bar with its whisker and its figures.
fn bar(svg: &mut Svg, row: &Row, top: f64, strength: f64, x: &impl Fn(f64) -> f64) {
    let ([median, least, most], middle) =
        (row.speeds().map(|it| if it.is_finite() { it } else { 0.0 }), top + BAR / 2.0);
    let class = if row.ours { "ours" } else { "peer" };
    svg.bar(class, (x(0.0), top), (x(median) - x(0.0), BAR), strength);
    svg.line("axis", (x(least), middle), (x(most), middle));
    svg.write(Side::Start, (x(most.max(median)) + MARGIN, middle), &label(row));
}

fn label(row: &Row) -> String {
    let ratio = ratio(row, "ratio").map_or(String::new(), |ratio| format!(" ({ratio}x)"));
    format!("{} T: {}{ratio}", row.threads, digits(row.speeds()[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::row::Cell;
    use crate::report::svg::tests::assert_legible;
    use serde_json::json;

    #[test]
    fn figures_stand_behind_bars_and_over_nothing() {
        let row = |name: &str, threads: usize, speed: f64| {
            let speeds = [("mops", json!(speed)), ("mops_min", json!(speed / 2.0)), ("mops_max", json!(speed * 1.5))];
            Row::new(name, threads, &Cell::of("c"), speeds.into_iter().chain([("ratio", json!(0.123))]))
        };
        let rows = [
            row("crossbeam-skiplist", 1, 123.0),
            row("crossbeam-skiplist", 128, 0.000_123),
            row("art", 1, 20.0),
            row("art", 128, f64::NAN),
        ];
        for width in [Width::Wide, Width::Narrow] {
            let svg = bars(&rows.iter().collect::<Vec<_>>(), width);
            assert_legible(&svg);
            assert!(svg.contains(">128 T: 0.000123 (0.12x)<") && !svg.contains("=\"NaN"), "{svg}");
            assert_eq!(svg.matches("<rect").count(), 4);
        }
    }
}
