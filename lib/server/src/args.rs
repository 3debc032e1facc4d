//! A command's arguments.

use core::ops::Index;

use archipelago_platform::touch;

/// The arguments of a command, in one run of bytes. The first argument is the command's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    data: Vec<u8>,
    /// The end of each argument, in bytes from the start of `data`.
    ends: Vec<u32>,
}

impl Args {
    /// Returns an empty list with room for `count` arguments of `bytes` bytes in total.
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), ends: Vec::with_capacity(count) }
    }

    /// Appends an argument.
    ///
    /// # Panics
    /// If all arguments together have 4 GiB or more. [`resp`](crate::resp) refuses such a request earlier.
    pub fn push(&mut self, argument: &[u8]) {
        self.data.extend_from_slice(argument);
        self.ends.push(u32::try_from(self.data.len()).expect("a request is shorter than 4 GiB"));
    }

    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the length of all arguments together, in bytes.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Returns how many bytes of memory the arguments take.
    pub fn memory(&self) -> usize {
        self.data.len() + self.ends.len() * size_of::<u32>()
    }

    /// Returns the argument at `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        // An argument may be in the replicas' log, so every node reads bytes that one node wrote. The virtual machine
        // (a simulator) is told of these accesses.
        touch(&raw const self.ends[index], size_of::<u32>());
        let argument = &self.data[start..end];
        touch(argument.as_ptr(), argument.len());
        Some(argument)
    }

    /// Returns the arguments from the index `first` on.
    pub fn from(&self, first: usize) -> impl ExactSizeIterator<Item = &[u8]> + DoubleEndedIterator + Clone {
        (first.min(self.len())..self.len()).map(|index| &self[index])
    }

    /// Returns whether the argument at `index` is `word`, in upper or lower case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    }
}

impl Index<usize> for Args {
    type Output = [u8];

    /// # Panics
    /// If there is no argument at `index`. The registry has checked the number of arguments before.
    fn index(&self, index: usize) -> &[u8] {
        self.get(index).expect("the arity was checked")
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Args {
    fn from_iter<I: IntoIterator<Item = T>>(arguments: I) -> Self {
        let mut args = Self::default();
        arguments.into_iter().for_each(|argument| args.push(argument.as_ref()));
        args
    }
}
