//! The file of all tables: it has a section for each paper. A section stays as it is until its paper is run again.

use std::collections::BTreeMap;
use std::path::Path;

use super::table::Count;
use crate::failure::Failure;
use crate::report::replace;

/// The first line of such a file.
const TITLE: &str = "# Papers beside the virtual machine";

const HEAD: &str = "\
What the papers state is in `papers/*.toml`; each section says which command made it. Nothing here is written by hand: \
`cargo sim papers --sweep --out ROWS --write FILE` makes everything anew, and goes on where it ended when it is typed again; \
`--only NAME` replaces a section, `--jobs N` keeps N processors busy. Which parts of each paper are implemented, and how, is in \
[fidelity.md](fidelity.md).

Everything here is **simulated** and reproduces no figure: [virtual-machine.md](virtual-machine.md) says what the model leaves \
out. *Ours* is the ratio's median and range over the sensitivity sweep: 19 variations of the model (21 where instructions are charged) \
with some seeds each: where a section says so, with more seeds for what is unresolved without. Each section says around which of its \
machine's numbers the sweep goes 20 % and around which 50 %. An ordering **holds** if it is so in at least 95 of 100 of these cells, is \
**contradicted** if its opposite is, and is **unresolved** otherwise. Two sides are *alike (to 1.25)* if neither is ahead by more than a \
quarter, and one is *no less (to 1.25)* if the other is not. *> 1.25*, for what a paper says scales, asks for a lead of more \
than a quarter. The paper's ratio is no part of the verdict. *Chance* is how often coins, one for each cell, would side with one of the \
two as clearly; cells of one variation, and neighbours, are not independent, so it flatters. \
*Why* is what is known of the cause, and *not found* where nothing is. If one varied number of the model decides an unresolved ordering, \
*why* says in how many cells it is so on each side of that number.
";

/// The beginning of each section.
const SECTION: &str = "\n## ";

/// Returns the paper's name in the first line of a section.
fn key(section: &str) -> &str {
    section.split(':').next().unwrap_or_default()
}

/// Returns a file's text with these sections added or replaced, in the order of the papers' names. Returns `None` if
/// `old` is neither empty nor a file of this kind.
pub fn with(old: &str, sections: &[String]) -> Option<String> {
    if !old.trim().is_empty() && !old.starts_with(TITLE) {
        return None;
    }
    let mut all: BTreeMap<&str, &str> = old.split(SECTION).skip(1).map(|section| (key(section), section)).collect();
    all.extend(sections.iter().map(|section| (key(section), section.as_str())));
    let body: String = all.values().map(|section| format!("{SECTION}{}\n", section.trim_end())).collect();
    Some(format!("{TITLE}\n\n{HEAD}{}{body}", counts(&all)))
}

/// Returns a table of each paper's counts, as the sections give them: how many orderings hold, are contradicted, or are
/// unresolved.
fn counts(sections: &BTreeMap<&str, &str>) -> String {
    let counts: Vec<(&str, Count)> =
        sections.iter().filter_map(|(key, section)| Some((*key, Count::read(section)?))).collect();
    if counts.is_empty() {
        return String::new();
    }
    let all = counts.iter().fold(Count::default(), |all, (_, it)| Count {
        hold: all.hold + it.hold,
        contradicted: all.contradicted + it.contradicted,
        unresolved: all.unresolved + it.unresolved,
    });
    let line = |key: &str, count: &Count| {
        let Count { hold, contradicted, unresolved } = count;
        format!("| {key} | {} | {hold} | {contradicted} | {unresolved} |\n", count.all())
    };
    let lines: String = counts.iter().map(|(key, count)| line(key, count)).collect();
    let head = "| paper | orderings that it states | hold | contradicted | unresolved |\n|---|--:|--:|--:|--:|\n";
    format!("\n{head}{lines}{}", line("all", &all))
}

fn failure(what: &str, path: &Path, why: &str) -> Failure {
    Failure::new(format!("cannot {what} {}: {why}", path.display()))
}

/// Reads a file's text; a file that does not exist is empty.
///
/// # Errors
/// If the file cannot be read, or is of another kind.
pub fn read(path: &Path) -> Result<String, Failure> {
    if !path.exists() {
        return Ok(String::new());
    }
    let text = std::fs::read_to_string(path).map_err(|error| failure("read", path, &error.to_string()))?;
    let of_this_kind = with(&text, &[]).is_some();
    let other = || failure("write", path, "it is no file of papers' tables; give the name of a new one");
    of_this_kind.then_some(text).ok_or_else(other)
}

/// Adds sections to a file, or replaces them.
///
/// # Errors
/// The errors of [`read`]; and if the file cannot be written.
pub fn update(path: &Path, sections: &[String]) -> Result<(), Failure> {
    let text = with(&read(path)?, sections).expect("it was read as one");
    replace(path, &text).map_err(|error| failure("write", path, &error.to_string()))
}
