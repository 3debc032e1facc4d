//! A chart of curves over thread counts, with the machine's socket boundaries.
//!
//! Every measured thread count has its label below the axis. If most of the thread counts double, the axis is
//! logarithmic, since on a linear axis half of the points would be in its first tenth. Names are written below the
//! chart, never over its points.

use super::row::{Row, digits};
use super::svg::escape;
use super::svg::{LINE, Side, Svg, Width, figure, ticks, wide};

/// Colours of curves, legible on white and on black. After the last colour they are used again, with dashed lines.
pub const COLOURS: [&str; 10] =
    ["#2f7ed8", "#d56a00", "#2b9a4b", "#dc4450", "#9467cf", "#a5673f", "#d0559f", "#12949c", "#8b8a17", "#7f8790"];
/// The least distance between two labels in one row, in pixels.
const APART: f64 = 8.0;

/// One point of a curve.
pub struct Point<'a> {
    /// The name of the curve.
    pub name: &'a str,
    /// The number of threads.
    pub threads: usize,
    /// The measured value.
    pub value: f64,
    /// The lower end of the whisker or band.
    pub least: f64,
    /// The upper end of the whisker or band.
    pub most: f64,
}

impl<'a> Point<'a> {
    /// Makes the point of a row, with the range of its runs.
    pub fn of(row: &'a Row) -> Self {
        let [value, least, most] = row.speeds();
        Point { name: &row.name, threads: row.threads, value, least, most }
    }
}

/// How a chart shows the range of each point's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// A whisker at each point, for a few runs.
    Whiskers,
    /// An area along the curve, for a sensitivity sweep.
    Band,
}

/// Draws the curves, in the order in which their names occur, and a dashed line at every socket boundary. `unit` names
/// the unit of the values.
pub fn chart(points: &[Point<'_>], boundaries: &[usize], spread: Spread, unit: &str) -> String {
    let entry = |(number, name): (usize, &str)| format!("<li><i class=\"{}\"></i>{}</li>", class(number), escape(name));
    let names: String = names(points).into_iter().enumerate().map(entry).collect();
    figure(|width| draw(points, boundaries, spread, unit, width)) + &format!("<ul class=\"legend\">{names}</ul>\n")
}

/// The axis of thread counts.
struct Axis {
    /// The thread counts, ascending, each once.
    threads: Vec<usize>,
    logarithmic: bool,
    /// The ends of the axis, in pixels.
    left: f64,
    right: f64,
}

/// The label of a thread count: its position in pixels, and its row.
struct Label {
    threads: usize,
    x: f64,
    row: usize,
}

impl Axis {
    fn of(points: &[Point<'_>], left: f64, right: f64) -> Axis {
        let mut threads: Vec<usize> = points.iter().map(|point| point.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let steps = threads.windows(2);
        let doubling = steps.filter(|pair| pair[1] as f64 >= 1.9 * pair[0] as f64).count();
        let logarithmic = threads.len() > 2 && 2 * doubling >= threads.len() - 1;
        Axis { threads, logarithmic, left, right }
    }

    /// Returns the position of a thread count on the axis, without a unit.
    fn at(&self, threads: usize) -> f64 {
        let threads = threads as f64;
        if self.logarithmic { threads.log2() } else { threads }
    }

    /// Returns the range from the first point to the last, with some margin.
    fn range(&self) -> (f64, f64) {
        let first = self.threads.first().map_or(1, |first| *first);
        let last = self.threads.last().map_or(2, |last| *last);
        let start = if self.logarithmic { self.at(first) } else { 0.0 };
        let end = self.at(last).max(start + 1.0);
        let room = (end - start) * 0.03;
        (if self.logarithmic { start - room } else { start }, end + room)
    }

    /// Returns the position of a thread count, in pixels.
    fn x(&self, threads: usize) -> f64 {
        let (start, end) = self.range();
        self.left + (self.at(threads) - start) / (end - start) * (self.right - self.left)
    }

    /// Returns the label of every thread count, in the first row that has room for it.
    fn labels(&self) -> Vec<Label> {
        let mut ends: Vec<f64> = Vec::new();
        let label = |&threads: &usize| {
            let (x, half) = (self.x(threads), wide(&threads.to_string()) / 2.0);
            let row = ends.iter().position(|end| end + APART <= x - half).unwrap_or(ends.len());
            ends.resize(ends.len().max(row + 1), 0.0);
            ends[row] = x + half;
            Label { threads, x, row }
        };
        self.threads.iter().map(label).collect()
    }
}

fn draw(points: &[Point<'_>], boundaries: &[usize], spread: Spread, unit: &str, width: Width) -> String {
    let finite = |value: f64| if value.is_finite() { value.max(0.0) } else { 0.0 };
    let highest = points.iter().map(|point| finite(point.most)).fold(1e-9, f64::max) * 1.05;
    let values = ticks(highest, 6.0);
    let left = values.iter().map(|(_, text)| wide(text)).fold(0.0, f64::max) + 12.0;
    let axis = Axis::of(points, left, width.pixels() - 16.0);
    let labels = axis.labels();
    // The unit is written above the axis of values.
    let (top, tall) = (LINE + 8.0, if width == Width::Wide { 380.0 } else { 260.0 });
    let bottom = top + tall;
    let y = |value: f64| bottom - finite(value) / highest * tall;
    let rows = labels.iter().map(|label| label.row + 1).max().unwrap_or(1) as f64;
    let below = bottom + 6.0 + rows * LINE;

    let mut svg = Svg::new(width.pixels(), below + LINE + 6.0, &format!("{unit} by threads, as curves"));
    svg.write(Side::Start, (0.0, LINE / 2.0), unit);
    for (value, text) in values {
        svg.line("grid", (left, y(value)), (axis.right, y(value)));
        svg.write(Side::End, (left - 6.0, y(value)), &text);
    }
    for Label { threads, x, row } in labels {
        svg.line("axis", (x, bottom), (x, bottom + 5.0));
        svg.write(Side::Middle, (x, bottom + 6.0 + LINE * (row as f64 + 0.5)), &threads.to_string());
    }
    let scale = if axis.logarithmic { "threads (logarithmic)" } else { "threads" };
    svg.write(Side::Middle, ((axis.left + axis.right) / 2.0, below + LINE / 2.0), scale);
    let (start, end) = axis.range();
    for boundary in boundaries.iter().filter(|boundary| (start..end).contains(&axis.at(**boundary))) {
        svg.line("boundary", (axis.x(*boundary), top), (axis.x(*boundary), bottom));
    }
    for (number, name) in names(points).into_iter().enumerate() {
        let class = class(number);
        let mut curve: Vec<&Point<'_>> = points.iter().filter(|point| point.name == name).collect();
        curve.sort_by_key(|point| point.threads);
        let place = |point: &Point<'_>, value: f64| (axis.x(point.threads), y(value));
        match spread {
            Spread::Band => {
                let above = curve.iter().map(|point| place(point, point.most));
                let below = curve.iter().rev().map(|point| place(point, point.least));
                svg.area(&class, above.chain(below));
            }
            Spread::Whiskers => {
                curve.iter().for_each(|point| svg.line(&class, place(point, point.least), place(point, point.most)));
            }
        }
        svg.curve(&class, curve.iter().map(|point| place(point, point.value)));
        for point in curve {
            let [value, least, most] = [point.value, point.least, point.most].map(digits);
            let about = format!("{name}, {} threads: {value} [{least} to {most}]", point.threads);
            svg.point(&class, place(point, point.value), &about);
        }
    }
    svg.line("axis", (axis.left, top), (axis.left, bottom));
    svg.line("axis", (axis.left, bottom), (axis.right, bottom));
    svg.end()
}

/// Returns the CSS class of a curve: its colour and its dashes.
fn class(number: usize) -> String {
    format!("c{} d{}", number % COLOURS.len(), number / COLOURS.len() % 3)
}

fn names<'a>(points: &[Point<'a>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for point in points {
        if !names.contains(&point.name) {
            names.push(point.name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::tests::{assert_legible, texts};

    fn points(threads: &[usize]) -> Vec<Point<'static>> {
        let point = |name, &threads: &usize| {
            let value = threads as f64;
            Point { name, threads, value, least: value / 2.0, most: value * 2.0 }
        };
        ["first", "second"].into_iter().flat_map(|name| threads.iter().map(move |it| point(name, it))).collect()
    }

    fn axis(threads: &[usize]) -> Axis {
        Axis::of(&points(threads), 60.0, 944.0)
    }

    fn pictures(threads: &[usize], spread: Spread) -> [String; 2] {
        [Width::Wide, Width::Narrow].map(|width| draw(&points(threads), &[2, 56], spread, "Mops/s", width))
    }

    #[test]
    fn numbers_that_double_have_a_logarithmic_axis() {
        let logarithmic = |threads: &[usize]| axis(threads).logarithmic;
        assert!(logarithmic(&[1, 2, 9, 18, 36, 72, 108, 144]) && logarithmic(&[1, 2, 4]));
        assert!(!logarithmic(&[28, 56, 84, 112]) && !logarithmic(&[1, 2]) && !logarithmic(&[7]));
    }

    #[test]
    fn every_number_of_threads_has_a_label_below_the_axis_and_none_lies_over_another() {
        let many: Vec<usize> = (1..=64).collect();
        for threads in
            [&[1, 2, 14, 28, 56, 112, 168, 224][..], &[1, 2, 3, 4, 5, 6, 7, 8], &[1, 100, 101, 102], &[5], &many]
        {
            for svg in pictures(threads, Spread::Whiskers) {
                assert_legible(&svg);
                let floor = svg.lines().rfind(|line| line.starts_with("<line class=\"axis\"")).unwrap();
                let floor: f64 = floor.split_once("y1=\"").unwrap().1.split_once('"').unwrap().0.parse().unwrap();
                let (below, above): (Vec<_>, Vec<_>) =
                    texts(&svg).into_iter().partition(|(_, (_, y), _)| *y > floor + 8.0);
                let labels = |threads: &usize| below.iter().filter(|(.., text)| *text == threads.to_string()).count();
                assert!(threads.iter().all(|threads| labels(threads) == 1), "{svg}");
                assert_eq!(below.len(), threads.len() + 1, "the numbers, and what they are: {svg}");
                assert!(above.iter().all(|(side, ..)| *side != Side::Middle), "{svg}");
            }
        }
        // 112, 168 and 224 fit in one row; 101 is written below 100.
        let rows = |threads| axis(threads).labels().iter().map(|it| it.row).collect::<Vec<_>>();
        assert_eq!(rows(&[1, 2, 14, 28, 56, 112, 168, 224]), [0; 8]);
        assert_eq!(rows(&[1, 100, 101, 102]), [0, 0, 1, 2]);
    }

    #[test]
    fn names_stand_below_the_chart() {
        let page = chart(&points(&[1, 2, 4]), &[2], Spread::Whiskers, "Mops/s");
        let (pictures, legend) = page.split_once("<ul class=\"legend\">").unwrap();
        assert!(
            legend.contains("<li><i class=\"c0 d0\"></i>first</li><li><i class=\"c1 d0\"></i>second</li>"),
            "{legend}"
        );
        assert!(
            !pictures.contains(">first<") && pictures.contains("<title>first, 4 threads: 4.00 [2.00 to 8.00]</title>")
        );
        assert_eq!((class(9).as_str(), class(10).as_str()), ("c9 d0", "c0 d1"), "the eleventh is not the first");
    }

    #[test]
    fn a_sweep_is_a_band() {
        let polygons = |spread| pictures(&[1, 2, 4], spread).map(|svg| svg.matches("<polygon").count());
        assert_eq!((polygons(Spread::Band), polygons(Spread::Whiskers)), ([2; 2], [0; 2]));
    }

    /// Checks the contrast as WCAG 2 defines it. WCAG demands at least 3 for graphics that are not text.
    #[test]
    fn colours_are_seen_on_white_and_on_black() {
        let luminance = |colour: &str| {
            let part = |at: usize| {
                let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
                if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
        };
        for colour in COLOURS {
            let contrast = |paper: &str| {
                let (one, other) = (luminance(colour) + 0.05, luminance(paper) + 0.05);
                one.max(other) / one.min(other)
            };
            assert!(contrast("#ffffff") >= 3.0 && contrast("#14171a") >= 3.0, "{colour}");
        }
    }
}
