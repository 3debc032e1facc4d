//! The files: what a paper states, as data.

use std::path::Path;

use serde::Deserialize;

use crate::failure::Failure;
use crate::harness::simulated::Contender;
use crate::report::row::Row;
use crate::sim::measure::Measure;
use crate::workload::Distribution;

/// A paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The file's name without `.toml`.
    #[serde(skip)]
    pub key: String,
    /// Title, authors, place.
    pub title: String,
    /// The preset that stands for its machine.
    pub machine: String,
    /// What to know before reading the table.
    #[serde(default)]
    pub note: String,
    /// Its figures.
    pub figure: Vec<Figure>,
}

/// A figure, a table, or a sentence.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// As the paper calls it.
    pub name: String,
    /// The section in which its text is.
    pub section: String,
    /// What it shows.
    pub what: String,
    /// The experiment: arguments of `sim`, without contenders, machine, threads and sizes.
    pub run: String,
    /// Arguments for the paper's sizes.
    #[serde(default)]
    pub paper: String,
    /// Arguments for sizes that a small computer can simulate in minutes.
    #[serde(default)]
    pub small: String,
    /// Another preset than the paper's.
    pub machine: Option<String>,
    /// Threads of every claim that names none.
    pub threads: usize,
    /// What no paper states: all of its claims are this project's own.
    #[serde(default)]
    pub ours: bool,
    /// The orderings that the paper states, and ours.
    pub claim: Vec<Claim>,
}

/// That one contender is ahead of another, or level with it: does more operations a second, or has more of what is counted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The one that does more.
    pub ahead: String,
    /// With this many threads.
    pub threads: Option<usize>,
    /// The one that does less.
    pub behind: String,
    /// With this many threads.
    pub behind_threads: Option<usize>,
    /// With keys by Zipf's law of this exponent, one of the experiment's.
    pub theta: Option<f64>,
    /// The one that does less with this one.
    pub behind_theta: Option<f64>,
    /// How many times as much, if the paper says it.
    pub ratio: Option<f64>,
    /// They do the same, within this factor: not an ordering.
    pub within: Option<f64>,
    /// By what they are compared.
    #[serde(default)]
    pub by: Measure,
    /// No paper states it: it is this project's own, and not counted among the papers'.
    #[serde(default)]
    pub ours: bool,
    /// Why ours differs, where that is known.
    #[serde(default)]
    pub reason: String,
}

/// A contender with this many threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Its name on the command line.
    pub name: String,
    /// Threads.
    pub threads: usize,
    /// Zipf's exponent, if the experiment has several.
    pub theta: Option<f64>,
}

/// A figure with the rows that its claims need, and what went wrong with the others.
pub struct Done<'a> {
    /// The figure.
    pub figure: &'a Figure,
    /// The experiment as it was run.
    pub command: String,
    /// What was measured, and for which side.
    pub rows: Vec<(Side, Row)>,
    /// What went wrong.
    pub failures: Vec<String>,
}

impl Figure {
    /// The preset that it runs on.
    pub fn machine<'a>(&'a self, paper: &'a Paper) -> &'a str {
        self.machine.as_deref().unwrap_or(&paper.machine)
    }
}

impl Claim {
    /// Who is compared: the one ahead, the one behind.
    pub fn sides(&self, figure: &Figure) -> [Side; 2] {
        let side = |name: &String, threads: Option<usize>, theta| {
            let threads = threads.unwrap_or(figure.threads);
            Side { name: name.clone(), threads, theta }
        };
        let (threads, theta) = (self.behind_threads.or(self.threads), self.behind_theta.or(self.theta));
        [side(&self.ahead, self.threads, self.theta), side(&self.behind, threads, theta)]
    }
}

impl Side {
    /// Whether this is what a contender does.
    pub fn is(&self, contender: &Contender) -> bool {
        let is_law = |theta: f64| {
            let law = if theta == 0.0 { Distribution::Uniform } else { Distribution::Zipf(theta) };
            contender.cell.distribution == Some(law)
        };
        contender.name == self.name && self.theta.is_none_or(is_law)
    }
}

/// Reads the folder's files, in the order of their names, or those that a comma-separated list names, in its order.
///
/// # Errors
/// If a file is not there or wrong.
pub fn read(folder: &Path, only: Option<&str>) -> Result<Vec<Paper>, Failure> {
    let known = names(folder)?;
    let Some(only) = only else { return known.iter().map(|name| load(folder, name)).collect() };
    only.split(',')
        .map(str::trim)
        .map(|name| match known.iter().any(|known| known == name) {
            true => load(folder, name),
            false => Err(Failure::new(format!("--only {name} is not known; known are {}", known.join(", ")))),
        })
        .collect()
}

fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error: std::io::Error| {
        let folder = folder.display();
        Failure::new(format!("cannot read the papers' folder {folder}: {error} (--folder says where it is)"))
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".toml")).map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}

fn load(folder: &Path, name: &str) -> Result<Paper, Failure> {
    let path = folder.join(format!("{name}.toml"));
    let failed = |what: String| Failure::new(format!("{}: {}", path.display(), what.replace('\n', ", ")));
    let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    let paper: Paper = toml::from_str(&text).map_err(|error| {
        let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(&text));
        failed(format!("{} (line {})", error.message(), 1 + before.matches('\n').count()))
    })?;
    for figure in &paper.figure {
        check(figure).map_err(|what| failed(format!("{}: {what}", figure.name)))?;
    }
    Ok(Paper { key: name.to_owned(), ..paper })
}

/// Whether a figure's claims can be judged, and be shown in a table.
fn check(figure: &Figure) -> Result<(), String> {
    let line = |text: &&String| text.contains(['\n', '|']);
    let texts = [&figure.name, &figure.section, &figure.what];
    let reasons = figure.claim.iter().map(|claim| &claim.reason);
    if let Some(text) = texts.into_iter().chain(reasons).find(line) {
        return Err(format!("`{text}` has a line's end or a `|` in it, which the table's cells cannot have"));
    }
    if figure.claim.is_empty() {
        return Err("no claim".to_owned());
    }
    for claim in &figure.claim {
        let sides = claim.sides(figure);
        let names = format!("{} ahead of {}", claim.ahead, claim.behind);
        // In an order in which what is no number is refused, too.
        if claim.within.is_some_and(|within| !(within > 1.0 && within.is_finite())) {
            return Err(format!("{names}: `within` is a factor above 1"));
        }
        if claim.ratio.is_some_and(|ratio| !(ratio > 0.0 && ratio.is_finite())) {
            return Err(format!("{names}: `ratio` is a number above 0"));
        }
        if sides.iter().any(|side| side.threads == 0) {
            return Err(format!("{names}: 0 threads do nothing"));
        }
        if sides[0] == sides[1] {
            return Err(format!("{names}: with as many threads it is compared with itself"));
        }
    }
    Ok(())
}
