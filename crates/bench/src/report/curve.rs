//! A chart of curves over thread counts, with the machine's socket boundaries, as SVG text.
//!
//! Every measured number of threads has its label. Where most of the numbers double, the axis is logarithmic: else half of
//! the points would lie on the first tenth of it. Names stand beside the chart, never over its points.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::row::Row;

const SIZE: (u32, u32) = (1000, 440);
/// Room for the names, to the right.
const NAMES: i32 = 210;
/// Left of the plot, for its labels.
const LEFT: u32 = 60;
/// Below it: two rows of labels, and what they are.
const BELOW: u32 = 56;
const MARGIN: i32 = 10;
/// The least distance of two labels in one row, in pixels.
const APART: f64 = 26.0;

/// One point of a curve.
pub struct Point<'a> {
    /// Which curve.
    pub name: &'a str,
    /// How many threads.
    pub threads: usize,
    /// What was measured.
    pub value: f64,
    /// The lower end of the whisker or band.
    pub least: f64,
    /// The upper end of it.
    pub most: f64,
}

impl<'a> Point<'a> {
    /// A row with the range of its runs.
    pub fn of(row: &'a Row) -> Self {
        let [value, least, most] = row.speeds();
        Point { name: &row.name, threads: row.threads, value, least, most }
    }
}

/// How far a point may be from where it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// A whisker at each point: a few runs.
    Whiskers,
    /// An area along the curve: a sweep.
    Band,
}

/// The curves, in the order in which their names come, and a dashed line at every boundary; `unit` names their values.
pub fn chart(points: &[Point<'_>], boundaries: &[usize], spread: Spread, unit: &str) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&root, points, boundaries, spread, unit).expect("drawing into a string does not fail");
    }
    svg
}

type Error<B> = DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>;

/// The axis of threads.
struct Axis {
    /// Ascending, each once.
    threads: Vec<usize>,
    logarithmic: bool,
}

impl Axis {
    fn of(points: &[Point<'_>]) -> Axis {
        let mut threads: Vec<usize> = points.iter().map(|point| point.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let steps = threads.windows(2);
        let doubling = steps.filter(|pair| pair[1] as f64 >= 1.9 * pair[0] as f64).count();
        let logarithmic = threads.len() > 2 && 2 * doubling >= threads.len() - 1;
        Axis { threads, logarithmic }
    }

    /// The place of a number of threads on the axis.
    fn at(&self, threads: usize) -> f64 {
        let threads = threads as f64;
        if self.logarithmic { threads.log2() } else { threads }
    }

    /// From the first point to the last, with some room.
    fn range(&self) -> (f64, f64) {
        let first = self.threads.first().map_or(1, |first| *first);
        let last = self.threads.last().map_or(2, |last| *last);
        let start = if self.logarithmic { self.at(first) } else { 0.0 };
        let end = self.at(last).max(start + 1.0);
        let room = (end - start) * 0.02;
        (if self.logarithmic { start - room } else { start }, end + room)
    }

    /// Every number with its place and its row: the second, where the first has no room.
    fn labels(&self) -> Vec<(usize, f64, usize)> {
        let (start, end) = self.range();
        let pixels = f64::from(SIZE.0 - LEFT) - f64::from(NAMES + 2 * MARGIN);
        let mut taken = [f64::NEG_INFINITY; 2];
        let label = |&threads: &usize| {
            let at = (self.at(threads) - start) / (end - start) * pixels;
            let row = usize::from(at - taken[0] < APART);
            taken[row] = at;
            (threads, self.at(threads), row)
        };
        self.threads.iter().map(label).collect()
    }
}

fn draw<B: DrawingBackend>(
    root: &DrawingArea<B, plotters::coord::Shift>,
    points: &[Point<'_>],
    boundaries: &[usize],
    spread: Spread,
    unit: &str,
) -> Result<(), Error<B>> {
    let axis = Axis::of(points);
    let (start, end) = axis.range();
    let highest = points.iter().map(|point| point.most).fold(1e-9, f64::max) * 1.05;
    let mut chart = ChartBuilder::on(root)
        .margin(MARGIN)
        .margin_right(NAMES)
        .set_label_area_size(LabelAreaPosition::Left, LEFT)
        .set_label_area_size(LabelAreaPosition::Bottom, BELOW)
        .build_cartesian_2d(start..end, 0.0..highest)?;
    chart.configure_mesh().disable_x_mesh().x_labels(0).y_desc(unit).light_line_style(TRANSPARENT).draw()?;
    for (threads, at, row) in axis.labels() {
        let below = -highest * (0.025 + 0.05 * row as f64);
        chart.draw_series([Text::new(threads.to_string(), (at, below), style(13.0, HPos::Center))])?;
    }
    let scale = if axis.logarithmic { "threads (logarithmic)" } else { "threads" };
    chart.draw_series([Text::new(scale, ((start + end) / 2.0, -highest * 0.135), style(13.0, HPos::Center))])?;
    for &boundary in boundaries.iter().filter(|boundary| (start..end).contains(&axis.at(**boundary))) {
        let line = [(axis.at(boundary), 0.0), (axis.at(boundary), highest)];
        chart.draw_series(DashedLineSeries::new(line, 4, 4, BLACK.mix(0.4).into()))?;
    }
    for (number, name) in names(points).into_iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let mut curve: Vec<&Point<'_>> = points.iter().filter(|point| point.name == name).collect();
        curve.sort_by_key(|point| point.threads);
        let place = |point: &&Point<'_>, value: f64| (axis.at(point.threads), value);
        match spread {
            Spread::Band => {
                let above = curve.iter().map(|point| place(point, point.most));
                let below = curve.iter().rev().map(|point| place(point, point.least));
                let outline: Vec<_> = above.chain(below).collect();
                chart.draw_series([Polygon::new(outline, colour.mix(0.15))])?;
            }
            Spread::Whiskers => {
                let whisker =
                    |point| PathElement::new(vec![place(point, point.least), place(point, point.most)], colour);
                chart.draw_series(curve.iter().map(whisker))?;
            }
        }
        chart.draw_series(LineSeries::new(
            curve.iter().map(|point| place(point, point.value)),
            colour.stroke_width(2),
        ))?;
        chart.draw_series(curve.iter().map(|point| Circle::new(place(point, point.value), 3, colour.filled())))?;
        legend(root, number, name, colour)?;
    }
    root.present()
}

/// A name beside the chart.
fn legend<B: DrawingBackend>(
    root: &DrawingArea<B, plotters::coord::Shift>,
    number: usize,
    name: &str,
    colour: RGBAColor,
) -> Result<(), Error<B>> {
    let (x, y) = (SIZE.0 as i32 - NAMES + MARGIN, 2 * MARGIN + 18 * number as i32);
    root.draw(&PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)))?;
    root.draw(&Text::new(name.to_owned(), (x + 24, y), style(13.0, HPos::Left)))
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

fn style(size: f64, side: HPos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).pos(Pos::new(side, VPos::Center))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(threads: &[usize]) -> Vec<Point<'static>> {
        let point = |name, &threads: &usize| {
            let value = threads as f64;
            Point { name, threads, value, least: value / 2.0, most: value * 2.0 }
        };
        ["first", "second"].into_iter().flat_map(|name| threads.iter().map(move |it| point(name, it))).collect()
    }

    #[test]
    fn numbers_that_double_have_a_logarithmic_axis() {
        let logarithmic = |threads: &[usize]| Axis::of(&points(threads)).logarithmic;
        assert!(logarithmic(&[1, 2, 9, 18, 36, 72, 108, 144]) && logarithmic(&[1, 2, 4]));
        assert!(!logarithmic(&[28, 56, 84, 112]) && !logarithmic(&[1, 2]) && !logarithmic(&[7]));
    }

    #[test]
    fn every_number_of_threads_has_a_label_and_none_lies_over_another() {
        for threads in [&[1, 2, 14, 28, 56, 112, 168, 224][..], &[1, 2, 3, 4, 5, 6, 7, 8], &[1, 100, 101, 102], &[5]] {
            let axis = Axis::of(&points(threads));
            let labels = axis.labels();
            assert_eq!(labels.iter().map(|it| it.0).collect::<Vec<_>>(), threads);
            let svg = chart(&points(threads), &[56], Spread::Whiskers, "Mops/s");
            assert!(threads.iter().all(|threads| svg.contains(&format!("\n{threads}\n"))), "{svg}");
        }
        // 112, 168, 224 on one row; 101 below 100.
        let rows = |threads| Axis::of(&points(threads)).labels().iter().map(|it| it.2).collect::<Vec<_>>();
        assert_eq!(rows(&[1, 2, 14, 28, 56, 112, 168, 224]), [0; 8]);
        assert_eq!(rows(&[1, 100, 101]), [0, 0, 1]);
    }

    #[test]
    fn names_stand_beside_the_chart() {
        let svg = chart(&points(&[1, 2, 4]), &[2], Spread::Whiskers, "Mops/s");
        let right = SIZE.0 as i32 - NAMES;
        let x = |line: &str| line.split("x=\"").nth(1)?.split('"').next()?.parse::<i32>().ok();
        let mut named = 0;
        for (element, text) in svg.lines().zip(svg.lines().skip(1)) {
            if ["first", "second"].contains(&text) {
                named += 1;
                assert!(x(element).unwrap() > right, "{element}");
            }
        }
        assert_eq!(named, 2);
        let points = svg.lines().filter(|line| line.starts_with("<circle"));
        let all: Vec<i32> = points
            .map(|line| line.split("cx=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!(all.len() == 6 && all.iter().all(|x| *x < right), "{all:?}");
    }

    #[test]
    fn a_sweep_is_a_band() {
        let polygons = |spread| chart(&points(&[1, 2, 4]), &[], spread, "Mops/s").matches("<polygon").count();
        assert_eq!((polygons(Spread::Band), polygons(Spread::Whiskers)), (2, 0));
    }
}
