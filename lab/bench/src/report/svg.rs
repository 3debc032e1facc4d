//! Pictures in a page: SVG text in the page's own colours, at two widths.
//!
//! A browser scales a picture to the width of its window. To keep text as large as the page's text, each picture has
//! two versions, for wide windows and for phones; the page shows one of them.

use core::fmt::Write;

/// Widths of pictures, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// For windows of more than 800 pixels.
    Wide,
    /// For narrower windows.
    Narrow,
}

impl Width {
    /// Returns the width in pixels.
    pub fn pixels(self) -> f64 {
        match self {
            Width::Wide => 960.0,
            Width::Narrow => 360.0,
        }
    }
}

/// Returns both versions of a picture, of which the page shows one.
pub fn figure(draw: impl Fn(Width) -> String) -> String {
    let (wide, narrow) = (draw(Width::Wide), draw(Width::Narrow));
    format!("<figure>\n<div class=\"wide\">{wide}</div>\n<div class=\"narrow\">{narrow}</div>\n</figure>\n")
}

/// The height of a line of text, and the approximate width of a character, in pixels.
pub const LINE: f64 = 20.0;
const CHARACTER: f64 = 8.5;

/// Returns the approximate width of a text, in pixels.
pub fn wide(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// How a text is aligned to its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The text begins at the position.
    Start,
    /// The middle of the text is at the position.
    Middle,
    /// The text ends at the position.
    End,
}

/// A position, in pixels from the upper left corner.
pub type Point = (f64, f64);

/// A picture.
pub struct Svg {
    text: String,
}

impl Svg {
    /// Begins a picture of this size; `about` describes its content in words.
    pub fn new(width: f64, height: f64, about: &str) -> Svg {
        let about = escape(about);
        Svg { text: format!("<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{about}\">\n") }
    }

    /// Draws a line.
    pub fn line(&mut self, class: &str, (x, y): Point, (to_x, to_y): Point) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\"/>"
        ));
    }

    /// Draws a line through positions.
    pub fn curve(&mut self, class: &str, places: impl Iterator<Item = Point>) {
        self.push(format_args!("<polyline class=\"{class}\" points=\"{}\"/>", points(places)));
    }

    /// Draws an area with these corners.
    pub fn area(&mut self, class: &str, places: impl Iterator<Item = Point>) {
        self.push(format_args!("<polygon class=\"{class}\" points=\"{}\"/>", points(places)));
    }

    /// Draws a bar from its upper left corner, with this width and height. `opacity` is 1 for the full colour.
    pub fn bar(&mut self, class: &str, (x, y): Point, (width, height): Point, opacity: f64) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" opacity=\"{opacity:.2}\"/>"
        ));
    }

    /// Draws a point. `about` is shown when a mouse rests on the point.
    pub fn point(&mut self, class: &str, (x, y): Point, about: &str) {
        let about = escape(about);
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{about}</title></circle>"
        ));
    }

    /// Writes a text whose middle line is at the height of the position.
    pub fn write(&mut self, side: Side, (x, y): Point, text: &str) {
        let class = match side {
            Side::Start => "s",
            Side::Middle => "m",
            Side::End => "e",
        };
        // The middle of a line of 15 pixels is about 5 pixels above its baseline.
        let (y, text) = (y + 5.0, escape(text));
        self.push(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"));
    }

    /// Returns the complete picture.
    pub fn end(self) -> String {
        self.text + "</svg>"
    }

    fn push(&mut self, element: core::fmt::Arguments<'_>) {
        writeln!(self.text, "{element}").expect("writing into a string does not fail");
    }
}

fn points(places: impl Iterator<Item = Point>) -> String {
    places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

/// Returns values for an axis from 0 to `highest`, with their labels. There are about `count` values; their distance is
/// 1, 2 or 5 times a power of ten.
pub fn ticks(highest: f64, count: f64) -> Vec<(f64, String)> {
    let rough = highest / count;
    let power = 10_f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough).unwrap_or(rough);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let values = (0..).map(|number| f64::from(number) * step).take_while(|value| *value <= highest * (1.0 + 1e-9));
    values.map(|value| (value, format!("{value:.decimals$}"))).collect()
}

/// Escapes a text for HTML: file names and command lines may contain any character.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns the texts of a picture, each with its alignment and position.
    pub fn texts(svg: &str) -> Vec<(Side, Point, String)> {
        let number = |element: &str, key: &str| {
            let value = element.split_once(&format!(" {key}=\"")).unwrap().1.split_once('"').unwrap().0;
            value.parse::<f64>().unwrap()
        };
        let text = |line: &str| {
            let side = match line.split_once("class=\"")?.1.chars().next()? {
                's' => Side::Start,
                'm' => Side::Middle,
                _ => Side::End,
            };
            let shown = line.split_once('>')?.1.split_once('<')?.0;
            Some((side, (number(line, "x"), number(line, "y") - 5.0), shown.to_owned()))
        };
        svg.lines().filter(|line| line.starts_with("<text")).filter_map(text).collect()
    }

    /// Asserts that no text of a picture overlaps another text or the edge.
    pub fn assert_legible(svg: &str) {
        let size = svg.split_once("viewBox=\"0 0 ").unwrap().1.split_once('"').unwrap().0;
        let (width, height) = size.split_once(' ').unwrap();
        let (width, height) = (width.parse::<f64>().unwrap(), height.parse::<f64>().unwrap());
        let boxed = |(side, (x, y), text): &(Side, Point, String)| {
            let left = match side {
                Side::Start => *x,
                Side::Middle => x - wide(text) / 2.0,
                Side::End => x - wide(text),
            };
            (left, left + wide(text), y - 8.0, y + 8.0)
        };
        let texts = texts(svg);
        for (number, one) in texts.iter().enumerate() {
            let (left, right, top, bottom) = boxed(one);
            assert!(left >= -1.0 && right <= width + 1.0 && top >= 0.0 && bottom <= height, "{one:?} is cut: {svg}");
            for other in &texts[..number] {
                let (its_left, its_right, its_top, its_bottom) = boxed(other);
                let beside = right <= its_left || its_right <= left || bottom <= its_top || its_bottom <= top;
                assert!(beside, "{one:?} lies over {other:?}");
            }
        }
    }

    #[test]
    fn ticks_are_round_numbers() {
        let shown = |highest, count| ticks(highest, count).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(shown(10.0, 5.0), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(shown(0.6, 5.0), ["0.0", "0.2", "0.4", "0.6"]);
        assert_eq!(shown(0.00013, 3.0), ["0.00000", "0.00005", "0.00010"]);
        assert_eq!(shown(1234.0, 4.0), ["0", "500", "1000"]);
    }

    #[test]
    fn markup_in_names_stays_text() {
        assert_eq!(escape("<b>\"R&D\"</b>"), "&lt;b&gt;&quot;R&amp;D&quot;&lt;/b&gt;");
    }
}
