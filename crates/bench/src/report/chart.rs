//! A bar chart of one workload as SVG text.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::row::{Row, digits};

const WIDTH: u32 = 900;
/// Height of one bar with the space around it.
const BAR: usize = 22;
/// Room for the names of indexes.
const NAMES: u32 = 170;
/// Room behind the longest bar for its figures, as a part of the bar's length.
const BEHIND: f64 = 0.22;

/// Ours.
const OURS: RGBColor = RGBColor(0, 110, 160);
/// Peers.
const PEER: RGBColor = RGBColor(150, 150, 150);

/// Bars of throughput, grouped by index, one for each thread count from few (light) to many (dark).
pub fn bars(rows: &[&Row]) -> String {
    let mut indexes: Vec<&str> = Vec::new();
    let mut threads: Vec<usize> = Vec::new();
    for row in rows {
        if !indexes.contains(&row.name.as_str()) {
            indexes.push(&row.name);
        }
        if !threads.contains(&row.threads) {
            threads.push(row.threads);
        }
    }
    let height = (indexes.len() * threads.len() * BAR + 60) as u32;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&root, rows, &indexes, &threads).expect("drawing into a string does not fail");
    }
    svg
}

type Error<B> = DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>;

fn draw<B: DrawingBackend>(
    root: &DrawingArea<B, plotters::coord::Shift>,
    rows: &[&Row],
    indexes: &[&str],
    threads: &[usize],
) -> Result<(), Error<B>> {
    let longest = rows.iter().map(|row| row.speeds()[2]).fold(0.0, f64::max).max(1e-9);
    let mut chart = ChartBuilder::on(root)
        .margin(10)
        .set_label_area_size(LabelAreaPosition::Left, NAMES)
        .set_label_area_size(LabelAreaPosition::Bottom, 40)
        .build_cartesian_2d(0.0..longest * (1.0 + BEHIND), (indexes.len() as f64)..0.0)?;
    chart.configure_mesh().disable_y_mesh().disable_y_axis().x_desc("Mops/s").x_labels(8).draw()?;
    let names = text_style(15.0, HPos::Right);
    let figures = text_style(13.0, HPos::Left);
    for (at, name) in indexes.iter().enumerate() {
        let place = (-longest * 0.01, at as f64 + 0.5);
        chart.draw_series([Text::new((*name).to_owned(), place, names.clone())])?;
    }
    let thickness = 0.84 / threads.len() as f64;
    for row in rows {
        let [median, least, most] = row.speeds();
        let group = indexes.iter().position(|name| *name == row.name).expect("collected from the rows");
        let within = threads.iter().position(|count| *count == row.threads).expect("collected from the rows");
        let top = group as f64 + 0.08 + within as f64 * thickness;
        let bottom = top + thickness * 0.9;
        let middle = (top + bottom) / 2.0;
        let strength = 0.45 + 0.5 * (within + 1) as f64 / threads.len() as f64;
        let fill = if row.ours { OURS } else { PEER }.mix(strength.min(1.0)).filled();
        chart.draw_series([Rectangle::new([(0.0, top), (median, bottom)], fill)])?;
        chart.draw_series([PathElement::new(vec![(least, middle), (most, middle)], BLACK)])?;
        let place = (most.max(median) + longest * 0.01, middle);
        chart.draw_series([Text::new(label(row), place, figures.clone())])?;
    }
    root.present()
}

fn text_style(size: f64, side: HPos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).pos(Pos::new(side, VPos::Center))
}

fn label(row: &Row) -> String {
    let ratio = row.real("ratio").map_or(String::new(), |ratio| format!(" ({ratio:.2}x)"));
    format!("{} T: {}{ratio}", row.threads, digits(row.speeds()[0]))
}
