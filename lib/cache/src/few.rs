//! A list that mostly has one item.

/// A list whose first item is stored in place, without an allocation.
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

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Removes and returns an item, in no particular order.
    pub fn pop(&mut self) -> Option<T> {
        self.others.pop().or_else(|| self.first.take())
    }

    /// Returns the items in the order of their addition.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.first.iter().chain(&self.others).copied()
    }
}
