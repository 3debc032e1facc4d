//! Libraries of functions: their texts, and what each function says of itself.
//!
//! All databases share one set of libraries. What carries a function out is no part of it: a call compiles the library's text
//! (in the module `script`), so nothing is here that a snapshot, an RDB file or another replica would not have.
//!
//! # Invariants
//! - The names of two functions differ in more than upper and lower case.
//! - All libraries together take at most [`MOST`] bytes.

use archipelago_platform::sync::Arc;
use std::collections::BTreeMap;

use crate::operation::{Input, put_bytes, put_number};
use crate::reply::Fault;

/// Bytes that all libraries may take: a recovery reads them at once, and a call compiles one of them.
pub const MOST: usize = 64 << 20;

/// Flags of functions and of scripts, in the order in which they are told. A flag's bit is its place here.
pub const FLAGS: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];
/// Changes nothing: runs on a replica, too.
pub const NO_WRITES: u8 = 1;
/// Runs although memory is short.
pub const ALLOW_OOM: u8 = 1 << 1;

/// The bit of a flag's name.
pub fn flag(name: &[u8]) -> Option<u8> {
    FLAGS.iter().position(|flag| flag.as_bytes() == name).map(|bit| 1 << bit)
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Letters, digits and underscores.
    pub name: String,
    /// What it is said to do.
    pub description: Option<Vec<u8>>,
    /// Bits of [`FLAGS`].
    pub flags: u8,
}

impl Function {
    /// Bytes that it takes, about.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.description.as_ref().map_or(0, Vec::len)
    }
}

/// A library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Letters, digits and underscores.
    pub name: String,
    /// The whole text, with its first line.
    pub code: Vec<u8>,
    /// In the order of their names.
    pub functions: Vec<Function>,
}

impl Library {
    /// The text without its first line, of which the end stays: lines keep their numbers.
    pub fn text(&self) -> &[u8] {
        let end = self.code.iter().position(|byte| *byte == b'\n').unwrap_or(self.code.len());
        &self.code[end..]
    }

    /// Bytes that it takes, about.
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

/// What becomes of the libraries that are there when others are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They stay, and one of the same name is an error.
    Append,
    /// One of the same name goes.
    Replace,
    /// All go.
    Flush,
}

/// The libraries. A copy shares them.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    libraries: BTreeMap<String, Arc<Library>>,
    /// Functions by their names in lower case: the library, and the place in it.
    names: BTreeMap<String, (Arc<Library>, usize)>,
    bytes: usize,
}

impl Functions {
    /// The function of this name, in upper or lower case, and its library.
    pub fn find(&self, name: &[u8]) -> Option<(&Arc<Library>, &Function)> {
        let name = core::str::from_utf8(name).ok()?.to_ascii_lowercase();
        let (library, place) = self.names.get(&name)?;
        Some((library, &library.functions[*place]))
    }

    /// Returns whether there is a function of this name, and it changes nothing.
    pub fn only_reads(&self, name: &[u8]) -> bool {
        self.find(name).is_some_and(|(_, function)| function.flags & NO_WRITES != 0)
    }

    /// The library of this name.
    pub fn library(&self, name: &str) -> Option<&Library> {
        self.libraries.get(name).map(|library| &**library)
    }

    /// The libraries, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Library> {
        self.libraries.values().map(|library| &**library)
    }

    /// How many libraries and functions there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.libraries.len(), self.names.len())
    }

    /// Bytes that they take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a library in place of the one of its name, if there is one.
    ///
    /// # Errors
    /// If another has a function of the same name, or there is no room: nothing was changed then.
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

    /// Removes a library. Returns whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.take(name).is_some()
    }

    /// Adds libraries: all, or none.
    ///
    /// # Errors
    /// As [`insert`](Self::insert), and if the policy keeps a library of the same name.
    pub fn join(&mut self, others: &Self, policy: Policy) -> Result<(), Fault> {
        let mut joined = if policy == Policy::Flush { Self::default() } else { self.clone() };
        for name in others.libraries.keys() {
            // All that go, before any comes: their functions may have moved from one to another.
            if joined.remove(name) && policy == Policy::Append {
                return Err(Fault::made(format!("ERR Library {name} already exists")));
            }
        }
        others.libraries.values().try_for_each(|library| joined.insert(library.clone()))?;
        *self = joined;
        Ok(())
    }

    /// Hands all to a digest.
    pub fn digest(&self, add: &mut impl FnMut(&[u8])) {
        let mut bytes = Vec::new();
        for library in self.iter() {
            bytes.clear();
            library.put(&mut bytes);
            add(&bytes);
        }
    }

    /// Appends all, for a snapshot.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_number(self.libraries.len() as u64, out);
        self.iter().for_each(|library| library.put(out));
    }

    /// Those that [`put`](Self::put) has written. Returns `None` if that makes no sense.
    pub fn read(input: &mut Input<'_>) -> Option<Self> {
        let mut functions = Self::default();
        for _ in 0..input.number()? {
            functions.insert(Arc::new(Library::read(input)?)).ok()?;
        }
        Some(functions)
    }
}

/// The error for libraries that take more than [`MOST`].
pub fn too_much() -> Fault {
    Fault::made(format!("ERR not enough memory: all libraries together may take {} MiB", MOST >> 20))
}
