//! Chooses things by the names that a command line lists.

use crate::failure::Failure;

/// A name for several things, and a function that returns whether the name stands for a thing.
pub type Group<'a, T> = (&'a str, &'a dyn Fn(T) -> bool);

/// Returns the things that a comma-separated list names, in the list's order, each once. `all` and the names of
/// `groups` stand for several things, possibly for none.
///
/// # Errors
/// If a name is not known, or nothing is chosen.
pub fn choose<T: Copy + PartialEq>(
    what: &str,
    list: &str,
    known: &[T],
    name: impl Fn(T) -> &'static str,
    groups: &[Group<'_, T>],
) -> Result<Vec<T>, Failure> {
    let names = || {
        let mut names: Vec<&str> = Vec::new();
        known.iter().map(|it| name(*it)).for_each(|name| names.extend((!names.contains(&name)).then_some(name)));
        let groups: String = groups.iter().map(|(group, _)| format!(", {group}")).collect();
        format!("{} (or all{groups})", names.join(", "))
    };
    let mut chosen = Vec::new();
    for wanted in list.split(',').map(str::trim) {
        let group = groups.iter().find(|(group, _)| *group == wanted);
        let is_meant = |it: &T| match group {
            Some((_, has)) => has(*it),
            None => wanted == "all" || name(*it) == wanted,
        };
        let meant: Vec<T> = known.iter().copied().filter(is_meant).collect();
        if meant.is_empty() && group.is_none() {
            return Err(Failure::new(format!("unknown {what} '{wanted}'; known are {}", names())));
        }
        for it in meant {
            if !chosen.contains(&it) {
                chosen.push(it);
            }
        }
    }
    if chosen.is_empty() {
        return Err(Failure::new(format!("--{what} {list} chooses nothing; known are {}", names())));
    }
    Ok(chosen)
}

/// Returns the names that a list chooses, as [`choose`] does.
///
/// # Errors
/// As [`choose`].
pub fn names(what: &str, list: &str, known: &[&'static str]) -> Result<Vec<&'static str>, Failure> {
    choose(what, list, known, |name| name, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_chooses_each_once_in_its_order() {
        let known = [1, 2, 3, 10];
        let name = |n| ["", "one", "two", "three", "", "", "", "", "", "", "ten"][n as usize];
        let even = |n: i32| n % 2 == 0;
        let none = |_: i32| false;
        let choose = |list: &str| choose("number", list, &known, name, &[("even", &even), ("none", &none)]);
        assert_eq!(choose("three, one,three").unwrap(), [3, 1]);
        assert_eq!(choose("ten,even,none").unwrap(), [10, 2]);
        assert_eq!(choose("two,all").unwrap(), [2, 1, 3, 10]);
        let said = choose("one,four").unwrap_err().to_string();
        assert_eq!(said, "unknown number 'four'; known are one, two, three, ten (or all, even, none)");
        assert!(choose("none").unwrap_err().to_string().contains("chooses nothing"));
    }
}
