//! The papers' files: what each paper states, as data.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::count::Count;
use crate::failure::Failure;
use crate::harness::simulated::Contender;
use crate::report::row::Cell;
use crate::sim::measure::Measure;

/// A paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The file's name without `.toml`.
    #[serde(skip)]
    pub key: String,
    /// Title, authors, and where it was published.
    pub title: String,
    /// The preset that models the paper's machine.
    pub machine: String,
    /// A note that is shown above the table.
    #[serde(default)]
    pub note: String,
    /// The paper's figures.
    pub figure: Vec<Figure>,
}

/// A figure, table or sentence of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name in the paper.
    pub name: String,
    /// The section whose text discusses it.
    pub section: String,
    /// A description of its content.
    pub what: String,
    /// The experiment: arguments of `sim`, without contenders, machine, threads and sizes.
    pub run: String,
    /// Arguments for the paper's sizes.
    #[serde(default)]
    pub paper: String,
    /// Arguments for sizes that a small computer can simulate in minutes.
    #[serde(default)]
    pub small: String,
    /// The preset, if it is not the paper's.
    pub machine: Option<String>,
    /// The number of threads of every claim that gives none.
    pub threads: usize,
    /// Whether all claims are this project's own; no paper states them.
    #[serde(default)]
    pub ours: bool,
    /// The orderings that the paper states, and this project's own.
    pub claim: Vec<Claim>,
}

/// A statement about two contenders: one is ahead of the other, or both are level. A contender is ahead if it has more
/// operations per second, or more of another figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The contender that is ahead.
    pub ahead: String,
    /// The number of threads of the contender ahead, if not the figure's.
    pub threads: Option<usize>,
    /// The contender that is behind.
    pub behind: String,
    /// The number of threads of the contender behind, if different.
    pub behind_threads: Option<usize>,
    /// If the experiment has several values of a parameter: which of them the claim is about, by the row's field, as in
    /// `{ update_percent = 2, distribution = "zipf:0.9" }`.
    #[serde(default)]
    pub at: Values,
    /// The values for the contender behind that are different.
    #[serde(default)]
    pub behind_at: Values,
    /// By what factor the first contender is ahead, if the paper gives it.
    pub ratio: Option<f64>,
    /// If set, the first figure must be more than this times the second. Papers claim so where they say that something
    /// scales, or is far ahead.
    pub least: Option<f64>,
    /// If set, the claim is not an ordering: both figures are equal within this factor.
    pub within: Option<f64>,
    /// For claims with `within`: whether the first figure may also be greater by more than the factor. Papers claim so
    /// where they say that something costs no throughput.
    #[serde(default)]
    pub or_better: bool,
    /// The figure by which the two contenders are compared.
    #[serde(default)]
    pub by: Measure,
    /// If set, a side's figure is divided by its own under these values. Papers claim so where they say that one
    /// contender gains or falls more than another.
    #[serde(default)]
    pub since: Values,
    /// As `since`, for the number of threads.
    pub since_threads: Option<usize>,
    /// Whether the claim is this project's own. No paper states such a claim, and it is not counted among the papers'
    /// claims.
    #[serde(default)]
    pub ours: bool,
    /// Why the virtual machine's result differs, if this is known.
    #[serde(default)]
    pub reason: String,
}

/// A contender with a number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Its name on the command line.
    pub name: String,
    /// The number of threads.
    pub threads: usize,
    /// The values of the parameters of which the experiment has several.
    pub at: Values,
}

/// Values of an experiment's parameters, by the names of a row's fields.
pub type Values = BTreeMap<String, Value>;

impl Figure {
    /// Returns the preset on which the figure runs.
    pub fn machine<'a>(&'a self, paper: &'a Paper) -> &'a str {
        self.machine.as_deref().unwrap_or(&paper.machine)
    }
}

impl Claim {
    /// Returns the two sides of the claim: first the side that is ahead, then the side that is behind.
    pub fn sides(&self, figure: &Figure) -> [Side; 2] {
        let side = |name: &String, threads: Option<usize>, at| Side {
            name: name.clone(),
            threads: threads.unwrap_or(figure.threads),
            at,
        };
        let behind_at = self.at.clone().into_iter().chain(self.behind_at.clone()).collect();
        let behind_threads = self.behind_threads.or(self.threads);
        [side(&self.ahead, self.threads, self.at.clone()), side(&self.behind, behind_threads, behind_at)]
    }

    /// Returns the side by whose figure that of `side` is divided, if the claim has one.
    fn start(&self, side: &Side) -> Option<Side> {
        if self.since.is_empty() && self.since_threads.is_none() {
            return None;
        }
        let at = side.at.clone().into_iter().chain(self.since.clone()).collect();
        Some(Side { name: side.name.clone(), threads: self.since_threads.unwrap_or(side.threads), at })
    }

    /// Returns the ratio that the paper states, if it states one.
    pub fn stated(&self) -> Option<f64> {
        self.ratio.filter(|_| !self.ours)
    }

    /// Returns the sides whose rows the claim needs.
    pub fn needed(&self, figure: &Figure) -> Vec<Side> {
        let sides = self.sides(figure);
        let starts: Vec<Side> = sides.iter().filter_map(|side| self.start(side)).collect();
        sides.into_iter().chain(starts).collect()
    }

    /// Returns the figures of both sides, cell by cell, if `of` returns those of all needed rows.
    pub fn figures(&self, figure: &Figure, of: impl Fn(&Side) -> Option<Vec<f64>>) -> Option<[Vec<f64>; 2]> {
        let figures = |side: &Side| {
            let Some(start) = self.start(side) else { return of(side) };
            Some(of(side)?.iter().zip(of(&start)?).map(|(cell, start)| cell / start).collect())
        };
        let [ahead, behind] = self.sides(figure);
        Some([figures(&ahead)?, figures(&behind)?])
    }

    /// Returns by what the sides' figures are divided, in words, or an empty text.
    pub fn since_title(&self) -> String {
        let values = self.since.iter().map(|(name, value)| titled(name, value));
        let threads = self.since_threads.map(|threads| format!("{threads} threads"));
        let parts: Vec<String> = values.chain(threads).collect();
        if parts.is_empty() { String::new() } else { format!(", each ÷ itself with {}", parts.join(", ")) }
    }

    /// Returns whether two claims of the figure state the same, whatever their ratios and reasons, or the opposite. That
    /// two sides are level is the same in both directions.
    fn repeats(&self, other: &Claim, figure: &Figure) -> bool {
        let kind = |claim: &Claim| (claim.by, claim.within, claim.or_better, claim.since_threads, claim.since_title());
        let ([ahead, behind], others) = (self.sides(figure), other.sides(figure));
        let opposite = !self.or_better && others == [behind.clone(), ahead.clone()];
        kind(self) == kind(other) && (opposite || self.least == other.least && others == [ahead, behind])
    }
}

impl Side {
    /// Returns the side's name in tables, without the number of threads.
    pub fn title(&self) -> String {
        let mut title = format!("`{}`", self.name);
        for (name, value) in &self.at {
            title += &format!(", {}", titled(name, value));
        }
        title
    }

    /// Returns whether the contender is the one of this side.
    pub fn is(&self, contender: &Contender) -> bool {
        let facts = contender.cell.facts();
        let is = |fact: &Value, value: &Value| match (fact.as_str(), value.as_str()) {
            // The details are parts with commas between them.
            (Some(fact), Some(value)) => fact == value || fact.split(", ").any(|part| part == value),
            _ => fact == value,
        };
        let has =
            |(name, value): (&String, &Value)| facts.iter().any(|(of, fact)| *of == name.as_str() && is(fact, value));
        contender.name == self.name && self.at.iter().all(has)
    }
}

/// Returns a parameter's value in words.
fn titled(name: &str, value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match name {
        "update_percent" => format!("{text} % updates"),
        "external_work" => format!("e = {text}"),
        "count" => format!("{text} keys"),
        _ => text,
    }
}

/// Reads the folder's files in the order of their names, or the files that a comma-separated list names in the list's
/// order.
///
/// # Errors
/// If a file does not exist or is not valid.
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
    let mut paper: Paper = toml::from_str(&text).map_err(|error| {
        let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(&text));
        failed(format!("{} (line {})", error.message(), 1 + before.matches('\n').count()))
    })?;
    if let Some(line) =
        [&paper.title, &paper.note].into_iter().flat_map(|text| text.lines()).find(|line| is_the_pages(line))
    {
        return Err(failed(format!("`{line}` is a line that only the table itself has")));
    }
    for (number, figure) in paper.figure.iter().enumerate() {
        if paper.figure[..number].iter().any(|other| other.name == figure.name) {
            return Err(failed(format!("{}: two figures have this name", figure.name)));
        }
        check(figure).map_err(|what| failed(format!("{}: {what}", figure.name)))?;
    }
    for figure in &mut paper.figure {
        figure.claim.iter_mut().for_each(|claim| claim.ours |= figure.ours);
    }
    Ok(Paper { key: name.to_owned(), ..paper })
}

/// Returns whether a line has a meaning in the file of tables: a heading, or a section's counts.
fn is_the_pages(line: &str) -> bool {
    line.starts_with('#') || line.starts_with(Count::BEGIN)
}

/// Checks that a figure's claims can be judged and shown in a table.
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
    if figure.run.split_whitespace().any(|word| word == "--sweep") {
        return Err("`run` has --sweep, which is an option of `sim papers`".to_owned());
    }
    for (number, claim) in figure.claim.iter().enumerate() {
        let (sides, needed) = (claim.sides(figure), claim.needed(figure));
        let names = format!("{} ahead of {}", claim.ahead, claim.behind);
        // The comparison is written so that NaN is refused, too.
        if claim.within.is_some_and(|within| !(within > 1.0 && within.is_finite())) {
            return Err(format!("{names}: `within` is a factor above 1"));
        }
        if claim.least.is_some_and(|least| !(least > 1.0 && least.is_finite())) {
            return Err(format!("{names}: `least` is a factor above 1"));
        }
        if claim.least.is_some() && claim.within.is_some() {
            return Err(format!("{names}: `least` says that one side is ahead, and `within` that neither is"));
        }
        if claim.or_better && claim.within.is_none() {
            return Err(format!("{names}: `or_better` needs `within`"));
        }
        if claim.ratio.is_some_and(|ratio| !(ratio > 0.0 && ratio.is_finite())) {
            return Err(format!("{names}: `ratio` is a number above 0"));
        }
        if claim.ratio.is_some_and(|ratio| ratio <= 1.0) && claim.within.is_none() {
            return Err(format!("{names}: a `ratio` of at most 1 is no lead"));
        }
        if needed.iter().any(|side| side.threads == 0) {
            return Err(format!("{names}: 0 threads do nothing"));
        }
        let known: Vec<&str> = Cell::default().facts().into_iter().map(|(name, _)| name).collect();
        if let Some(name) = needed.iter().flat_map(|side| side.at.keys()).find(|name| !known.contains(&name.as_str())) {
            return Err(format!("{names}: `{name}` is no parameter; known are {}", known.join(", ")));
        }
        if sides[0] == sides[1] {
            return Err(format!("{names}: with as many threads it is compared with itself"));
        }
        if sides.iter().any(|side| claim.start(side).as_ref() == Some(side)) {
            return Err(format!("{names}: `since` and `since_threads` give what a side has, so its figure would be 1"));
        }
        if figure.claim[..number].iter().any(|other| claim.repeats(other, figure)) {
            let [ahead, behind] = sides.map(|side| format!("{} with {} threads", side.title(), side.threads));
            return Err(format!("{ahead} ahead of {behind}: an earlier claim states the same, or the opposite"));
        }
    }
    Ok(())
}
