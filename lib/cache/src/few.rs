//! A list of mostly one.

/// Some items, of which the first needs no memory of its own.
pub(crate) struct Few<T> {
    first: Option<T>,
    others: Vec<T>,
}

impl<T: Copy> Few<T> {
    pub fn new() -> Self {
        Self { first: None, others: Vec::new() }
    }

    pub fn push(&mut self, item: T) {
        match self.first {
            None => self.first = Some(item),
            Some(_) => self.others.push(item),
        }
    }

    /// Takes one of them, in any order.
    pub fn pop(&mut self) -> Option<T> {
        self.others.pop().or_else(|| self.first.take())
    }

    /// In the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.first.iter().chain(&self.others).copied()
    }
}
