//! Libraries of functions (`FUNCTION LOAD`): their texts, and the name, description and flags of each function.
//!
//! All databases share one set of libraries. This module stores no compiled code: each call of a function runs the
//! library's text again (in the module `script`, which may have kept the compiled text). All that this module stores is
//! therefore also in a snapshot, in an RDB file and on each other replica.
//!
//! # Invariants
//! - The names of two functions differ even if upper and lower case are not distinguished.
//! - All libraries together take at most [`MOST`] bytes.

use archipelago_platform::sync::Arc;
use std::collections::BTreeMap;

use crate::operation::{Input, put_bytes, put_number};
use crate::reply::Fault;

/// The most bytes that all libraries together may take. The limit exists because recovery reads all libraries at once,
/// and each call runs the text of one library.
pub const MOST: usize = 64 << 20;

/// The flags of functions and scripts, in the order in which they are reported. The index of a flag in this list is its
/// bit.
pub const FLAGS: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];
/// The function changes nothing, so it may also run on a replica.
pub const NO_WRITES: u8 = 1;
/// The function may run although memory is short.
pub const ALLOW_OOM: u8 = 1 << 1;

/// Returns the bit of the flag with this name.
pub fn flag(name: &[u8]) -> Option<u8> {
    FLAGS.iter().position(|flag| flag.as_bytes() == name).map(|bit| 1 << bit)
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name: letters, digits and underscores.
    pub name: String,
    /// The description that the library gives.
    pub description: Option<Vec<u8>>,
    /// Bits of [`FLAGS`].
    pub flags: u8,
}

impl Function {
    /// Returns the approximate size of the function in bytes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.description.as_ref().map_or(0, Vec::len)
    }
}

/// A library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The name: letters, digits and underscores.
    pub name: String,
    /// The whole text, including its first line.
    pub code: Vec<u8>,
    /// The functions, sorted by name.
    pub functions: Vec<Function>,
}

impl Library {
    /// Returns the text without its first line. The line break of the first line stays, so that all other lines keep
    /// their numbers.
    pub fn text(&self) -> &[u8] {
        let end = self.code.iter().position(|byte| *byte == b'\n').unwrap_or(self.code.len());
        &self.code[end..]
    }

    /// Returns the approximate size of the library in bytes.
    fn weight(&self) -> usize {
        size_of::<Self>() + self.code.len() + self.functions.iter().map(Function::weight).sum::<usize>()
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.name.as_bytes(), out);
        put_bytes(&self.code, out);
        put_number(self.functions.len() as u64, out);
        for Function { name, description, flags } in &self.functions {
            put_bytes(name.as_bytes(), out);
            out.extend_from_slice(&[*flags, u8::from(description.is_some())]);
            put_bytes(description.as_deref().unwrap_or_default(), out);
        }
    }

    fn read(input: &mut Input<'_>) -> Option<Self> {
        let text = |input: &mut Input<'_>| String::from_utf8(input.bytes()?.to_vec()).ok();
        let function = |input: &mut Input<'_>| {
            let (name, flags, described) = (text(input)?, input.byte()?, input.byte()? != 0);
            let description = input.bytes()?;
            Some(Function { name, flags, description: described.then(|| description.to_vec()) })
        };
        Some(Self { name: text(input)?, code: input.bytes()?.to_vec(), functions: input.many(function)? })
    }
}

/// What happens to the existing libraries when other libraries are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The existing libraries stay. An added library with the name of an existing library is an error.
    Append,
    /// An added library replaces the existing library of the same name.
    Replace,
    /// All existing libraries are removed first.
    Flush,
}

/// All libraries. A clone shares the texts with the original.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    libraries: BTreeMap<String, Arc<Library>>,
    /// For each function's name in lower case: its library, and its index in the library.
    names: BTreeMap<String, (Arc<Library>, usize)>,
    bytes: usize,
}

impl Functions {
    /// Returns the function with this name, in upper or lower case, and its library.
    pub fn find(&self, name: &[u8]) -> Option<(&Arc<Library>, &Function)> {
        let name = core::str::from_utf8(name).ok()?.to_ascii_lowercase();
        let (library, place) = self.names.get(&name)?;
        Some((library, &library.functions[*place]))
    }

    /// Returns whether a function of this name exists and changes nothing.
    pub fn only_reads(&self, name: &[u8]) -> bool {
        self.find(name).is_some_and(|(_, function)| function.flags & NO_WRITES != 0)
    }

    /// Returns the library with this name.
    pub fn library(&self, name: &str) -> Option<&Library> {
        self.libraries.get(name).map(|library| &**library)
    }

    /// Returns the libraries, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Library> {
        self.libraries.values().map(|library| &**library)
    }

    /// Returns the number of libraries and the number of functions.
    pub fn counts(&self) -> (usize, usize) {
        (self.libraries.len(), self.names.len())
    }

    /// Returns the approximate size of all libraries in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a library. Replaces the library of the same name, if one exists.
    ///
    /// # Errors
    /// Returns an error if another library has a function of the same name, or if the libraries would take more than
    /// [`MOST`] bytes. Nothing is changed in case of an error.
    pub fn insert(&mut self, library: Arc<Library>) -> Result<(), Fault> {
        let before = self.take(&library.name);
        let added = self.check(&library);
        if let Some(library) = if added.is_ok() { Some(library) } else { before } {
            self.link(library);
        }
        added
    }

    fn check(&self, library: &Library) -> Result<(), Fault> {
        if self.bytes + library.weight() > MOST {
            return Err(too_much());
        }
        let taken = library.functions.iter().find(|function| self.find(function.name.as_bytes()).is_some());
        taken.map_or(Ok(()), |taken| Err(Fault::made(format!("ERR Function {} already exists", taken.name))))
    }

    fn link(&mut self, library: Arc<Library>) {
        self.bytes += library.weight();
        for (place, function) in library.functions.iter().enumerate() {
            self.names.insert(function.name.to_ascii_lowercase(), (library.clone(), place));
        }
        self.libraries.insert(library.name.clone(), library);
    }

    fn take(&mut self, name: &str) -> Option<Arc<Library>> {
        let library = self.libraries.remove(name)?;
        for function in &library.functions {
            self.names.remove(&function.name.to_ascii_lowercase());
        }
        self.bytes -= library.weight();
        Some(library)
    }

    /// Removes a library. Returns whether the library existed.
    pub fn remove(&mut self, name: &str) -> bool {
        self.take(name).is_some()
    }

    /// Adds all libraries of `others`, or none of them.
    ///
    /// # Errors
    /// Returns the errors of [`insert`](Self::insert), and an error if the policy is [`Policy::Append`] and a library
    /// of the same name exists.
    pub fn join(&mut self, others: &Self, policy: Policy) -> Result<(), Fault> {
        let mut joined = if policy == Policy::Flush { Self::default() } else { self.clone() };
        for name in others.libraries.keys() {
            // All replaced libraries are removed before any library is added, because a function may have moved from
            // one library to another.
            if joined.remove(name) && policy == Policy::Append {
                return Err(Fault::made(format!("ERR Library {name} already exists")));
            }
        }
        others.libraries.values().try_for_each(|library| joined.insert(library.clone()))?;
        *self = joined;
        Ok(())
    }

    /// Passes all libraries to a digest.
    pub fn digest(&self, add: &mut impl FnMut(&[u8])) {
        let mut bytes = Vec::new();
        for library in self.iter() {
            bytes.clear();
            library.put(&mut bytes);
            add(&bytes);
        }
    }

    /// Appends the encoding of all libraries, for a snapshot.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_number(self.libraries.len() as u64, out);
        self.iter().for_each(|library| library.put(out));
    }

    /// Reads what [`put`](Self::put) has written. Returns `None` if the bytes are malformed.
    pub fn read(input: &mut Input<'_>) -> Option<Self> {
        let mut functions = Self::default();
        for _ in 0..input.number()? {
            functions.insert(Arc::new(Library::read(input)?)).ok()?;
        }
        Some(functions)
    }
}

/// Returns the error for libraries that take more than [`MOST`] bytes.
pub fn too_much() -> Fault {
    Fault::made(format!("ERR not enough memory: all libraries together may take {} MiB", MOST >> 20))
}
