//! A chart of curves over thread counts, with the machine's socket boundaries, as SVG text.

use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 420);

/// One point of a curve.
pub struct Point<'a> {
    /// Which curve.
    pub name: &'a str,
    /// How many threads.
    pub threads: usize,
    /// What was measured.
    pub value: f64,
    /// The lower end of the whisker.
    pub least: f64,
    /// The upper end of the whisker.
    pub most: f64,
}

/// The curves, in the order in which their names come, and a dashed line at every boundary.
pub fn chart(points: &[Point<'_>], boundaries: &[usize]) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&root, points, boundaries).expect("drawing into a string does not fail");
    }
    svg
}

type Error<B> = DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>;

fn draw<B: DrawingBackend>(
    root: &DrawingArea<B, plotters::coord::Shift>,
    points: &[Point<'_>],
    boundaries: &[usize],
) -> Result<(), Error<B>> {
    let widest = points.iter().map(|point| point.threads).max().unwrap_or(1).max(2) as f64;
    let highest = points.iter().map(|point| point.most).fold(1e-9, f64::max) * 1.05;
    let mut chart = ChartBuilder::on(root)
        .margin(10)
        .set_label_area_size(LabelAreaPosition::Left, 60)
        .set_label_area_size(LabelAreaPosition::Bottom, 40)
        .build_cartesian_2d(0.0..widest * 1.02, 0.0..highest)?;
    chart.configure_mesh().x_desc("threads").y_desc("Mops/s, virtual").light_line_style(TRANSPARENT).draw()?;
    for &boundary in boundaries.iter().filter(|boundary| (**boundary as f64) < widest) {
        let line = [(boundary as f64, 0.0), (boundary as f64, highest)];
        chart.draw_series(DashedLineSeries::new(line, 4, 4, BLACK.mix(0.4).into()))?;
    }
    let mut names: Vec<&str> = Vec::new();
    for point in points {
        if !names.contains(&point.name) {
            names.push(point.name);
        }
    }
    for (number, name) in names.into_iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let curve: Vec<&Point<'_>> = points.iter().filter(|point| point.name == name).collect();
        let line =
            LineSeries::new(curve.iter().map(|point| (point.threads as f64, point.value)), colour.stroke_width(2));
        chart
            .draw_series(line)?
            .label(name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(
            curve.iter().map(|point| Circle::new((point.threads as f64, point.value), 3, colour.filled())),
        )?;
        chart.draw_series(curve.iter().map(|point| {
            let at = point.threads as f64;
            PathElement::new(vec![(at, point.least), (at, point.most)], colour)
        }))?;
    }
    let place = SeriesLabelPosition::UpperLeft;
    chart
        .configure_series_labels()
        .position(place)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()
}
