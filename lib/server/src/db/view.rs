//! What the function of a command gets to read: one of the databases at the operation's time.

use std::borrow::Cow;

use archipelago_platform::sync::Arc;

use super::seen::look;
use super::value::{Container, Entry, Value};
use super::{Db, Random, Space};
use crate::acl::user::User;
use crate::deadline::Deadline;
use crate::reply::{Fault, fault};

/// Read access to one of the databases at the time of an operation.
#[derive(Clone, Copy)]
pub struct View<'d> {
    /// All databases.
    pub db: &'d Db,
    /// The number of the database that is read.
    pub index: u32,
    /// The time of the operation, in milliseconds since 1970.
    pub now: u64,
    /// The seed of the operation's random numbers.
    pub seed: u64,
    /// The user whose rights limit the commands of a script. `None` permits every command.
    pub rights: Option<&'d User>,
    /// The deadline of a script. `None` means that the time of a script has no limit.
    pub deadline: Option<&'d Arc<Deadline>>,
}

impl<'d> View<'d> {
    /// Returns the database that is read.
    pub fn space(&self) -> &'d Space {
        look(&look(&self.db.spaces)[self.index as usize])
    }

    /// Returns the entry of a key. Returns `None` if the key is missing or has expired.
    pub fn find(&self, key: &[u8]) -> Option<&'d Entry> {
        self.space().keys.get(key).filter(|entry| !entry.is_dead(self.now))
    }

    /// Returns the value of a key.
    pub fn value(&self, key: &[u8]) -> Option<&'d Value> {
        self.find(key).map(|entry| &entry.value)
    }

    /// Returns the value of a key and records a use of the key.
    pub fn use_of(&self, key: &[u8]) -> Option<&'d Value> {
        let entry = self.find(key)?;
        entry.note_use(self.now, self.db.lfu, self.seed);
        Some(&entry.value)
    }

    /// Returns the bytes of a key's string.
    ///
    /// # Errors
    /// Returns an error if the key's value is not a string.
    pub fn string(&self, key: &[u8]) -> Result<Option<Cow<'d, [u8]>>, Fault> {
        self.use_of(key).map(|value| value.bytes().ok_or(fault::WRONG_TYPE)).transpose()
    }

    /// Returns the value of a key as a `T`.
    ///
    /// # Errors
    /// Returns an error if the key's value has another type.
    pub fn get<T: Container>(&self, key: &[u8]) -> Result<Option<&'d T>, Fault> {
        self.use_of(key).map(|value| T::of(value).ok_or(fault::WRONG_TYPE)).transpose()
    }

    /// Returns the random numbers of this operation.
    pub fn random(&self) -> Random {
        Random(self.seed)
    }
}
