//! Selectors: commands, keys and channels that are allowed together.

use super::units;
use crate::command::category;
use crate::family::glob;

/// The key's value may be read.
pub const READ: u8 = 1;
/// The key's value may be changed.
pub const WRITE: u8 = 2;

/// A set of commands, keys and channels. A request is allowed if all of its parts are in the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// One bit for each unit of [`units::all`]: whether the unit is allowed.
    allowed: Vec<u64>,
    /// Commands that are allowed only with certain first arguments: the command's name and the argument.
    firsts: Vec<(&'static str, Vec<u8>)>,
    /// The rules that produce `allowed` and `firsts` from an empty selector, in order.
    rules: Vec<String>,
    /// Whether every key is allowed.
    pub all_keys: bool,
    /// Whether every channel is allowed.
    pub all_channels: bool,
    /// Patterns of keys, with the allowed uses of matching keys.
    pub keys: Vec<(Vec<u8>, u8)>,
    /// Patterns of channels.
    pub channels: Vec<Vec<u8>>,
}

const UNKNOWN: &str = "Unknown command or category name in ACL";
const SYNTAX: &str = "Syntax error";
const KEYS: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns";
const CHANNELS: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels";
const DEEP: &str = "Allowing first-arg of a subcommand is not supported";

impl Selector {
    /// Returns a selector that allows everything.
    pub fn all() -> Self {
        let mut all = Self { all_keys: true, all_channels: true, ..Self::default() };
        all.every(true);
        all
    }

    /// Parses rules that are separated by blanks. The result of [`line`](Self::line) is parsed as an equal selector.
    ///
    /// # Errors
    /// The reason why one of the rules is wrong.
    pub fn read(rules: &[u8]) -> Result<Self, &'static str> {
        let mut selector = Self::default();
        let mut rules = rules.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty());
        rules.try_for_each(|rule| selector.apply(rule))?;
        Ok(selector)
    }

    fn every(&mut self, allow: bool) {
        self.allowed = vec![if allow { u64::MAX } else { 0 }; units::all().len().div_ceil(64)];
        self.firsts.clear();
        self.rules = if allow { vec!["+@all".to_owned()] } else { Vec::new() };
    }

    /// Returns whether a unit is allowed.
    pub fn allows(&self, unit: usize) -> bool {
        self.allowed.get(unit / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    /// Returns whether a command is allowed with this first argument.
    pub fn allows_first(&self, command: &str, first: &[u8]) -> bool {
        self.firsts.iter().any(|(name, word)| *name == command && word.eq_ignore_ascii_case(first))
    }

    /// Returns whether every request is allowed.
    pub fn is_all(&self) -> bool {
        self.all_keys && self.all_channels && (0..units::all().len()).all(|unit| self.allows(unit))
    }

    fn put(&mut self, unit: usize, allow: bool) {
        self.allowed.resize(units::all().len().div_ceil(64), 0);
        let bit = 1 << (unit % 64);
        if allow {
            self.allowed[unit / 64] |= bit;
        } else {
            self.allowed[unit / 64] &= !bit;
        }
    }

    /// Applies a rule to the selector.
    ///
    /// # Errors
    /// The reason why the rule is wrong.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), &'static str> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => (self.all_keys, self.keys) = (true, Vec::new()),
            b"resetkeys" => (self.all_keys, self.keys) = (false, Vec::new()),
            b"allchannels" | b"&*" => (self.all_channels, self.channels) = (true, Vec::new()),
            b"resetchannels" => (self.all_channels, self.channels) = (false, Vec::new()),
            b"allcommands" | b"+@all" => self.every(true),
            b"nocommands" | b"-@all" => self.every(false),
            _ => match rule {
                [b'~', pattern @ ..] => self.key(pattern, READ | WRITE)?,
                [b'%', ..] if self.all_keys => return Err(KEYS),
                [b'%', rest @ ..] => {
                    let end = rest.iter().position(|byte| *byte == b'~').ok_or(SYNTAX)?;
                    let mut modes = 0;
                    for letter in &rest[..end] {
                        let mode = match letter.to_ascii_uppercase() {
                            b'R' => READ,
                            b'W' => WRITE,
                            _ => return Err(SYNTAX),
                        };
                        if modes & mode != 0 {
                            return Err(SYNTAX);
                        }
                        modes |= mode;
                    }
                    match (modes, &rest[end + 1..]) {
                        (0, _) => return Err(SYNTAX),
                        (3, b"*") => (self.all_keys, self.keys) = (true, Vec::new()),
                        (modes, pattern) => self.key(pattern, modes)?,
                    }
                }
                [b'&', pattern @ ..] => self.channel(pattern)?,
                [sign @ (b'+' | b'-'), b'@', name @ ..] => self.category(name, *sign == b'+')?,
                [sign @ (b'+' | b'-'), name @ ..] => self.command(name, *sign == b'+')?,
                _ => return Err(SYNTAX),
            },
        }
        Ok(())
    }

    fn key(&mut self, pattern: &[u8], modes: u8) -> Result<(), &'static str> {
        if self.all_keys {
            return Err(KEYS);
        }
        if !super::is_name(pattern) {
            return Err(SYNTAX);
        }
        match self.keys.iter_mut().find(|(known, _)| known == pattern) {
            Some((_, known)) => *known |= modes,
            None => self.keys.push((pattern.to_vec(), modes)),
        }
        if self.keys.iter().any(|(known, modes)| known == b"*" && *modes == READ | WRITE) {
            (self.all_keys, self.keys) = (true, Vec::new());
        }
        Ok(())
    }

    fn channel(&mut self, pattern: &[u8]) -> Result<(), &'static str> {
        if self.all_channels {
            return Err(CHANNELS);
        }
        if !super::is_name(pattern) {
            return Err(SYNTAX);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    fn category(&mut self, name: &[u8], allow: bool) -> Result<(), &'static str> {
        let bit = units::category(name).ok_or(UNKNOWN)?;
        for (at, unit) in units::all().iter().enumerate().filter(|(_, unit)| unit.categories & bit != 0) {
            self.put(at, allow);
            if unit.part.is_none() {
                self.firsts.retain(|(command, _)| *command != unit.command);
            }
        }
        let name = category::NAMES[bit.trailing_zeros() as usize];
        self.note(format!("@{name}"), allow);
        Ok(())
    }

    fn command(&mut self, name: &[u8], allow: bool) -> Result<(), &'static str> {
        let (name, part) = match name.iter().position(|byte| *byte == b'|') {
            Some(bar) => (&name[..bar], Some(&name[bar + 1..])),
            None => (name, None),
        };
        let name = core::str::from_utf8(name).map_err(|_| UNKNOWN)?.to_ascii_lowercase();
        let units = units::of(&name).ok_or(UNKNOWN)?;
        let name = units::all()[units.start].command;
        let Some(part) = part else {
            units.for_each(|unit| self.put(unit, allow));
            self.firsts.retain(|(command, _)| *command != name);
            self.rules.retain(|rule| !rule[1..].strip_prefix(name).is_some_and(|rest| rest.starts_with('|')));
            self.note(name.to_owned(), allow);
            return Ok(());
        };
        // Versions before November 2026 did not know the subcommands of `CLUSTER` and `MODULE`. Their files and logs
        // may allow these commands with any word.
        let known = units.len() > 1 && !matches!(name, "cluster" | "module");
        if part.contains(&b'|') && known {
            return Err(DEEP);
        }
        if let Some(unit) = units::part(name, part) {
            self.put(unit, allow);
            self.note(units::all()[unit].name(), allow);
            return Ok(());
        }
        // A command with known subcommands cannot be allowed with a word that is not the name of a subcommand.
        if part.is_empty() || known || !allow {
            return Err(if part.is_empty() { SYNTAX } else { UNKNOWN });
        }
        let word = core::str::from_utf8(part).ok().filter(|_| super::is_name(part)).ok_or(SYNTAX)?.to_ascii_lowercase();
        self.note(format!("{name}|{word}"), true);
        if !self.allows_first(name, part) {
            self.firsts.push((name, word.into_bytes()));
        }
        Ok(())
    }

    /// Records a rule, and removes an earlier rule for the same units, because the new rule cancels it.
    fn note(&mut self, what: String, allow: bool) {
        self.rules.retain(|rule| rule[1..] != what);
        self.rules.push(format!("{}{what}", if allow { '+' } else { '-' }));
    }

    /// Returns the rules for commands, from an empty selector on.
    pub fn commands(&self) -> String {
        let base = if self.rules.first().is_some_and(|rule| rule == "+@all") { None } else { Some("-@all") };
        let rules: Vec<&str> = base.into_iter().chain(self.rules.iter().map(String::as_str)).collect();
        rules.join(" ")
    }

    /// Returns the rules for keys.
    pub fn key_rules(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let rule = |(pattern, modes): &(Vec<u8>, u8)| {
            let sign: &[u8] = match *modes {
                READ => b"%R~",
                WRITE => b"%W~",
                _ => b"~",
            };
            [sign, pattern].concat()
        };
        self.keys.iter().map(rule).collect::<Vec<_>>().join(&b' ')
    }

    /// Returns the rules for channels.
    pub fn channel_rules(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        self.channels.iter().map(|pattern| [b"&", &pattern[..]].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// Returns all rules of the selector, from an empty selector on.
    pub fn line(&self) -> Vec<u8> {
        let mut parts = Vec::new();
        parts.extend(Some(self.key_rules()).filter(|rules| !rules.is_empty()));
        if !self.all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        parts.extend(Some(self.channel_rules()).filter(|rules| !rules.is_empty()));
        parts.push(self.commands().into_bytes());
        parts.join(&b' ')
    }

    /// Returns whether a key may be used in all of the ways `modes`.
    pub fn allows_key(&self, key: &[u8], modes: u8) -> bool {
        self.all_keys || self.keys.iter().any(|(pattern, known)| known & modes == modes && glob::fits(pattern, key))
    }

    /// Returns whether every key may be read.
    pub fn reads_all(&self) -> bool {
        self.all_keys || self.keys.iter().any(|(pattern, known)| pattern == b"*" && known & READ != 0)
    }

    /// Returns whether a channel may be used. If `is_pattern`, `channel` is itself a pattern, which must equal an allowed
    /// pattern.
    pub fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let fits = |pattern: &Vec<u8>| if is_pattern { pattern == channel } else { glob::fits(pattern, channel) };
        self.all_channels || self.channels.iter().any(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Random;

    const RULES: &[&[u8]] = &[
        b"+@all",
        b"-@all",
        b"allkeys",
        b"resetkeys",
        b"allchannels",
        b"resetchannels",
        b"+get",
        b"-get",
        b"+@read",
        b"-@fast",
        b"+@connection",
        b"-@dangerous",
        b"+config|get",
        b"-config|set",
        b"+config",
        b"-config",
        b"+select|1",
        b"+cluster|info",
        b"-cluster|info",
        b"+cluster|earlier",
        b"-cluster",
        b"-@dangerous",
        b"+select|a b",
        b"+select|\xff",
        b"+get|)",
        b"-select",
        b"~a)",
        b"~(b",
        b"~c d",
        b"~\xff",
        b"%R~*",
        b"%W~*",
        b"%R~r",
        b"%W~r",
        b"&c",
        b"&d)",
        b"& e",
    ];

    #[test]
    fn subcommands_of_a_cluster_are_allowed_one_by_one() {
        let allows = |rules: &[u8], request: &str| {
            let args: crate::args::Args = request.split(' ').collect();
            let unit = units::asked(crate::command::find(&args[0]).unwrap(), &args).unwrap();
            Selector::read(rules).unwrap().allows(unit)
        };
        assert!(allows(b"+cluster|info", "CLUSTER INFO") && !allows(b"+cluster|info", "CLUSTER NODES"));
        assert!(allows(b"+@all -cluster|info", "CLUSTER NODES") && !allows(b"+@all -cluster|info", "CLUSTER INFO"));
        assert!(allows(b"+@all -@dangerous", "CLUSTER INFO") && !allows(b"+@all -@dangerous", "CLUSTER RESET"));
        assert!(allows(b"+module|list", "MODULE LIST") && !allows(b"+module|list", "MODULE LOAD"));
        assert_eq!(Selector::read(b"-cluster|what"), Err(UNKNOWN));
        assert!(Selector::read(b"+cluster|what").is_ok_and(|read| read.allows_first("cluster", b"what")));
        assert_eq!(Selector::read(b"+config|what"), Err(UNKNOWN));
    }

    /// The log stores rights as lines. A line that cannot be parsed would make the log unreadable.
    #[test]
    fn lines_are_read_as_equals() {
        let mut random = Random(5);
        for _ in 0..20_000 {
            let mut selector = Selector::default();
            for _ in 0..1 + random.below(8) {
                let _ = selector.apply(RULES[random.below(RULES.len())]);
            }
            let line = selector.line();
            let mut read = Selector::read(&line).unwrap_or_else(|what| panic!("{what}: {}", line.escape_ascii()));
            assert_eq!(read.line(), line, "{}", line.escape_ascii());
            selector.allowed.resize(read.allowed.len(), 0);
            selector.firsts.sort();
            read.firsts.sort();
            assert_eq!(read, selector, "{}", line.escape_ascii());
        }
    }
}
