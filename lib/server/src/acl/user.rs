//! A user: passwords and selectors.

use sha2::{Digest, Sha256};

use super::selector::Selector;

/// A password's SHA-256.
type Hash = [u8; 32];

/// A user; see the documentation of [`acl`](super).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Whether clients may authenticate as this user.
    pub on: bool,
    /// Whether any password is accepted.
    pub nopass: bool,
    /// The rule about verifying payloads of `RESTORE`, if there was one. The server reports the rule, and always verifies
    /// payloads.
    sanitize: Option<bool>,
    passwords: Vec<Hash>,
    /// A request is allowed if one of these selectors allows it. The first selector is the user's own and is never removed.
    pub selectors: Vec<Selector>,
    /// Whether every request is allowed. Stored, because it is read at each request.
    pub is_all: bool,
}

const HASH: &str = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";
const NO_PASSWORD: &str = "The password you are trying to remove from the user does not exist";

impl User {
    /// Returns a user that may do nothing.
    pub fn none() -> Self {
        let (selectors, passwords) = (vec![Selector::default()], Vec::new());
        Self { on: false, nopass: false, sanitize: None, passwords, selectors, is_all: false }
    }

    /// Returns a user that may do everything, without a password.
    pub fn all() -> Self {
        Self { on: true, nopass: true, selectors: vec![Selector::all()], is_all: true, ..Self::none() }
    }

    /// Applies a rule to the user. A rule in parentheses adds a whole selector.
    ///
    /// # Errors
    /// The reason why the rule is wrong.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), &'static str> {
        match rule.to_ascii_lowercase().as_slice() {
            b"on" => self.on = true,
            b"off" => self.on = false,
            b"nopass" => (self.nopass, self.passwords) = (true, Vec::new()),
            b"resetpass" => (self.nopass, self.passwords) = (false, Vec::new()),
            b"sanitize-payload" => self.sanitize = Some(true),
            b"skip-sanitize-payload" => self.sanitize = Some(false),
            b"clearselectors" => self.selectors.truncate(1),
            b"reset" => *self = Self::none(),
            _ => match rule {
                [b'>', password @ ..] => self.add(hash(password)),
                [b'#', digits @ ..] => self.add(digits_of(digits).ok_or(HASH)?),
                [b'<', password @ ..] => self.remove(hash(password))?,
                [b'!', digits @ ..] => self.remove(digits_of(digits).ok_or(HASH)?)?,
                [b'(', rules @ .., b')'] => self.selectors.push(Selector::read(rules)?),
                _ => self.selectors[0].apply(rule)?,
            },
        }
        self.is_all = self.selectors.iter().any(Selector::is_all);
        Ok(())
    }

    fn add(&mut self, hash: Hash) {
        self.nopass = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove(&mut self, hash: Hash) -> Result<(), &'static str> {
        let place = self.passwords.iter().position(|known| *known == hash).ok_or(NO_PASSWORD)?;
        self.passwords.remove(place);
        Ok(())
    }

    /// Returns whether a password is right. Every stored hash is compared to its end, so that the time reveals nothing about
    /// the hashes.
    pub fn has_password(&self, password: &[u8]) -> bool {
        let asked = hash(password);
        let found = self.passwords.iter().fold(false, |found, known| {
            let differ = known.iter().zip(&asked).fold(0, |differ, (one, other)| differ | (one ^ other));
            found | (core::hint::black_box(differ) == 0)
        });
        found || self.nopass
    }

    /// Returns the words for the user's state, as `ACL GETUSER` reports them.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.on { "on" } else { "off" }];
        flags.extend(self.nopass.then_some("nopass"));
        flags.extend(self.sanitize.map(|yes| if yes { "sanitize-payload" } else { "skip-sanitize-payload" }));
        flags
    }

    /// Returns the hashes of the user's passwords, in hexadecimal digits.
    pub fn passwords(&self) -> impl Iterator<Item = String> {
        self.passwords.iter().map(|hash| hash.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns a user with these selectors. No client can authenticate as this user.
    pub fn of(selectors: Vec<Selector>) -> Self {
        let is_all = selectors.iter().any(Selector::is_all);
        Self { selectors, is_all, ..Self::none() }
    }

    /// Returns the user's name, then all rules that produce the user from an empty user.
    pub fn line(&self, name: &[u8]) -> Vec<u8> {
        let mut parts = vec![b"user".to_vec(), name.to_vec()];
        parts.extend(self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()));
        parts.extend(self.passwords().map(|digits| format!("#{digits}").into_bytes()));
        parts.push(self.selectors[0].line());
        parts.extend(self.selectors[1..].iter().map(|selector| [b"(", &selector.line()[..], b")"].concat()));
        parts.join(&b' ')
    }
}

fn hash(password: &[u8]) -> Hash {
    Sha256::digest(password).into()
}

fn digits_of(digits: &[u8]) -> Option<Hash> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 64 || !digits.iter().all(is_digit) {
        return None;
    }
    let mut hash = Hash::default();
    for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// Joins the words of each selector in parentheses to one rule.
///
/// # Errors
/// If a parenthesis is not closed.
pub fn joined<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, String> {
    let mut rules: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for word in words {
        let rule = match open.take() {
            Some(mut selector) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
                selector
            }
            None => word.to_vec(),
        };
        if rule.starts_with(b"(") && !rule.ends_with(b")") {
            open = Some(rule);
        } else {
            rules.push(rule);
        }
    }
    match open {
        Some(rule) => {
            let first = rule.split(|byte| *byte == b' ').next().unwrap_or_default();
            let first = String::from_utf8_lossy(first);
            Err(format!("Unmatched parenthesis in acl selector starting at '{first}'."))
        }
        None => Ok(rules),
    }
}
