//! Access control: users, and the requests that each user may make.
//!
//! | module | contents |
//! |---|---|
//! | [`units`] | the units that rules allow or refuse: a command, or a subcommand |
//! | [`selector`] | a set of commands, keys and channels that rules allow together |
//! | [`user`] | a user: passwords and selectors; parsed from rules and written as rules |
//! | [`check`] | decides whether a user may make a request |
//! | [`log`] | the refusals that `ACL LOG` reports |
//!
//! [`Acl`] holds the users of a server. A user is immutable: a rule replaces the user by a changed copy. A client keeps a
//! reference to its user, so a request needs no lookup. The client looks its user up again when [`Acl::generation`] has
//! changed. The new user is stored before the generation changes, so a client that has seen the new generation finds the new
//! user.

pub mod check;
pub mod log;
pub mod selector;
pub mod units;
pub mod user;

use std::collections::BTreeMap;

use archipelago_platform::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use archipelago_platform::sync::{Arc, Mutex, MutexGuard};

use user::User;

/// The user of clients that have not authenticated.
pub const DEFAULT: &[u8] = b"default";

/// All users by their names.
type Users = BTreeMap<Vec<u8>, Arc<User>>;

/// A server's users.
pub struct Acl {
    users: Mutex<Users>,
    generation: AtomicU64,
    /// The refusals that `ACL LOG` reports.
    pub log: log::Log,
}

impl Default for Acl {
    /// Returns the user `default`, which needs no password and may do everything.
    fn default() -> Self {
        Self { users: Mutex::new(first()), generation: AtomicU64::new(1), log: log::Log::default() }
    }
}

fn first() -> Users {
    BTreeMap::from([(DEFAULT.to_vec(), Arc::new(User::all()))])
}

/// Returns whether a user may have this name.
pub fn is_name(name: &[u8]) -> bool {
    !name.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}

impl Acl {
    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().expect("nothing panics while it is locked")
    }

    /// Returns a number that changes whenever a user changes.
    pub fn generation(&self) -> u64 {
        // Pairs with the release in `moved`: a client that sees the number finds the changed user.
        self.generation.load(Acquire)
    }

    fn moved(&self) {
        self.generation.fetch_add(1, Release);
    }

    /// Returns the user with this name.
    pub fn user(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users().get(name).cloned()
    }

    /// Returns the names of all users, in order.
    pub fn names(&self) -> Vec<Vec<u8>> {
        self.users().keys().cloned().collect()
    }

    /// Returns one line for each user, in the format of the file of users.
    pub fn lines(&self) -> Vec<Vec<u8>> {
        self.users().iter().map(|(name, user)| user.line(name)).collect()
    }

    /// Applies rules to a user: all of them or none. Creates the user if it does not exist.
    ///
    /// # Errors
    /// The first rule that is wrong, and the reason.
    pub fn set<'a>(&self, name: &[u8], rules: impl Iterator<Item = &'a [u8]>) -> Result<(), String> {
        let rules = user::joined(rules)?;
        let mut users = self.users();
        let mut user = users.get(name).map_or_else(User::none, |user| User::clone(user));
        for rule in &rules {
            user.apply(rule)
                .map_err(|what| format!("Error in ACL SETUSER modifier '{}': {what}", String::from_utf8_lossy(rule)))?;
        }
        users.insert(name.to_vec(), Arc::new(user));
        drop(users);
        self.moved();
        Ok(())
    }

    /// Removes users. Returns the number of users removed. `default` is never removed.
    pub fn remove<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> usize {
        let mut users = self.users();
        let count = names.filter(|name| *name != DEFAULT && users.remove(*name).is_some()).count();
        drop(users);
        self.moved();
        count
    }

    /// Applies `requirepass`: `password` becomes the only password of `default`. If `password` is empty, `default` needs
    /// none.
    pub fn require(&self, password: &[u8]) {
        let rule = if password.is_empty() { b"nopass".to_vec() } else { [b">", password].concat() };
        self.set(DEFAULT, [&b"resetpass"[..], &rule].into_iter()).expect("these are rules");
    }

    /// Replaces all users by those of a file's text, or changes nothing if the text has an error. If the text has no line
    /// for `default`, `default` becomes what it is at a server's first start. Returns the names of the users that are gone.
    ///
    /// # Errors
    /// All errors of the text, line by line.
    pub fn load(&self, text: &[u8], path: &str) -> Result<Vec<Vec<u8>>, String> {
        let mut users = first();
        let mut wrong = String::new();
        let mut seen = std::collections::BTreeSet::new();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
            let what = match words.as_slice() {
                [] => Ok(()),
                [b"user", name, ..] if !seen.insert(*name) => {
                    Err(format!("Duplicate user '{}' found", String::from_utf8_lossy(name)))
                }
                [b"user", name, rules @ ..] => {
                    user_of(rules).map(|user| _ = users.insert(name.to_vec(), Arc::new(user)))
                }
                _ => Err("should start with user keyword".to_owned()),
            };
            if let Err(what) = what {
                wrong += &format!("{path}:{}: {what}. ", number + 1);
            }
        }
        if !wrong.is_empty() {
            return Err(format!(
                "{wrong}WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
            ));
        }
        let mut all = self.users();
        let gone = all.keys().filter(|name| !users.contains_key(*name)).cloned().collect();
        *all = users;
        drop(all);
        self.moved();
        Ok(gone)
    }

    /// Returns the user with this name if the password is right and the user is enabled.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = self.user(name);
        // An unknown name is checked against a user without passwords, so it takes as long as a known name.
        let fits = user.as_deref().unwrap_or(&User::none()).has_password(password);
        user.filter(|user| fits && user.on)
    }

    /// Returns whether clients need no authentication.
    pub fn is_open(&self) -> bool {
        self.user(DEFAULT).is_some_and(|user| user.on && user.nopass)
    }
}

fn user_of(rules: &[&[u8]]) -> Result<User, String> {
    let mut user = User::none();
    for rule in user::joined(rules.iter().copied())? {
        user.apply(&rule)?;
    }
    Ok(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_make_the_same_users() {
        let acl = Acl::default();
        let rules = b"on >pw <none ~a* %R~b* &c* +@all -@dangerous +config|get (+get ~x) -debug";
        let rules = rules.split(|byte| *byte == b' ').filter(|rule| *rule != b"<none");
        acl.set(b"bob", rules).unwrap();
        let lines = acl.lines();
        let other = Acl::default();
        other.load(&lines.join(&b'\n'), "users").unwrap();
        assert_eq!(other.lines(), lines);
        let pw = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
        let bob = format!(
            "user bob on #{pw} ~a* %R~b* resetchannels &c* +@all -@dangerous +config|get -debug (~x resetchannels -@all +get)"
        );
        assert_eq!(String::from_utf8_lossy(&lines[0]), bob);
    }

    #[test]
    fn a_wrong_rule_changes_nothing() {
        let acl = Acl::default();
        assert!(acl.set(b"bob", [&b"on"[..], b"+nothing"].into_iter()).is_err());
        assert!(acl.user(b"bob").is_none());
        let loaded = acl.load(b"user bob on\nuser bob off\nbob on", "users").unwrap_err();
        assert!(loaded.contains("users:2: Duplicate user 'bob' found. users:3: should start"), "{loaded}");
        assert_eq!(acl.names(), [DEFAULT]);
    }
}
